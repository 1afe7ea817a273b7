"""Proves that the protocol keeps its bounds for every number of nodes, by relations that numbers satisfy as well."""
