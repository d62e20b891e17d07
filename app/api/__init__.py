"""HTTP: it decodes requests, calls the packages below, and encodes answers. It decides nothing."""
