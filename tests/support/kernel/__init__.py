"""Nodes without a network, and exact counts to compare them with."""
