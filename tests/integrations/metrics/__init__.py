"""Metrics and the dashboard."""
