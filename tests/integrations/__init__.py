"""Limits in applications: without a framework, in each framework, and behind real servers."""
