"""Snapshots of one node for consoles: how it stands, its load and its busiest keys, left at the hub."""
