"""Exchanges of a node with its hub: when they happen, what they carry, and the thread or task that drives them."""
