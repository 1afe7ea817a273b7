"""Contracts from the formats of others: Envoy's descriptors, and XML with refill policies."""
