"""Storages for other rate-limiting libraries, such as `limits`: they replace the counters at a server."""
