"""Calls to servers that limit."""
