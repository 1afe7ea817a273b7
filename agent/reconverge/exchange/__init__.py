"""Exchanges of a node with its hub: when they happen, what they contain, and the thread or task that makes them."""
