"""Proves that the protocol keeps its bounds for any number of nodes, and checks steps of the code against the proof."""
