"""Nodes without a network, and what an exact count would answer in their place."""
