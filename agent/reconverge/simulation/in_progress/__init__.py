"""Simulates limits on work in progress under virtual time: fleets whose work takes a while, and cases from a seed."""
