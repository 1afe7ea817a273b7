"""Imports contracts from the formats of other rate limiters: Envoy's descriptors, and XML with refill policies."""
