"""Models, records and rankings as pure functions and values: no IO, no clock, no async."""
