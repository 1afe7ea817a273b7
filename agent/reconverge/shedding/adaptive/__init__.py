"""Limits on what a process has in progress, which it finds by itself."""
