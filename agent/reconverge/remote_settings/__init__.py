"""Settings that are published for a whole fleet: signed, read at the hub, and capped on each node."""
