"""The hub on a Redis Cluster."""
