"""Exchanges of a node with its hub: their timing and content, and the thread or task that drives them."""
