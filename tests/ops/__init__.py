"""Tests of dashboards, alerts and the runbook."""
