"""Contracts: documents, what holds by them, and how they are kept."""
