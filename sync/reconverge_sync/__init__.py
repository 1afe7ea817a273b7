"""Hubs: where the nodes of a fleet meet."""
