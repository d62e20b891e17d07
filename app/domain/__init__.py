"""Models, records and rankings: pure functions and values, without IO, clock or async."""
