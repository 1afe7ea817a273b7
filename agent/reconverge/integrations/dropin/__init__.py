"""Storages that replace the server-side counters of other rate-limiting libraries."""
