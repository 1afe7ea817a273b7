"""Judges a simulated fleet from outside, with knowledge of all its charges and their windows."""
