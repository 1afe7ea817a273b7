"""Scenarios as values, and the catalogue of all: a fleet, the faults that happen to it, and the promises."""
