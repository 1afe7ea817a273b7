"""Waiting: for one's turn in a queue, and for an answer of the hub."""
