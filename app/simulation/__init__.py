"""Judged data as live traffic, with simulated users."""
