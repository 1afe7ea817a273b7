"""Judges a simulated fleet from outside, with full knowledge of the charges and their windows."""
