"""Dashboards, alerts and the runbook: what those who run the service look at."""
