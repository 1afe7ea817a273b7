"""Exchanges of a node with its hub: when they happen, their contents, and the thread or task that makes them."""
