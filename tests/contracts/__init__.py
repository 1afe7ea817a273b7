"""Contracts: documents, what holds at a moment, files, imports and commands."""
