"""Simulated users: judged data as live traffic."""
