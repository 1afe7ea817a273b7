"""Contracts outside of the core: an API over HTTP, contract files, and imports from formats of other rate limiters."""
