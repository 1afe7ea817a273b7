"""Snapshots of one node for consoles, sent to the hub: its state, its load and its busiest keys."""
