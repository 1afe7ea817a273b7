"""Contracts for applications: an API over HTTP."""
