"""Proves that the protocol keeps its bounds for every number of nodes, and checks steps of the code by the proof."""
