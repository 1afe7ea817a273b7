"""Storages for libraries that count on a server today."""
