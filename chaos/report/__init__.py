"""Writes results as files, as a table, and as a page with pictures."""
