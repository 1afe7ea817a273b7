"""Contracts: an API over HTTP, files, and what is made of them from other formats."""
