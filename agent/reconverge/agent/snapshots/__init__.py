"""Snapshots of one node that are sent to the hub for consoles: the node's state, its load and its busiest keys."""
