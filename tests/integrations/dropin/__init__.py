"""Storages and caches for libraries that count on a server today."""
