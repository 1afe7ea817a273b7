"""Requests that wait: for their turn in a queue, or for an answer of the hub."""
