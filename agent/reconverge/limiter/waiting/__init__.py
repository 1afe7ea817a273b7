"""Requests that wait: for their turn in a queue, and for an answer of the hub."""
