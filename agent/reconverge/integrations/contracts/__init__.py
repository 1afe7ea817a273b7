"""Contracts in files, and what is made of them from other formats."""
