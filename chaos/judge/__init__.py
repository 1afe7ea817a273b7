"""Judges the records of a run: which promises were kept."""
