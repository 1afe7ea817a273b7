"""Contracts: an API over HTTP, files, and imports from other formats."""
