"""Settings that are published for a whole fleet."""
