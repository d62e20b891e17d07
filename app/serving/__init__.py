"""What answers /rank: the weights in memory, and the writer of impressions."""
