"""Faults that are planted into the production code, to see which ways of testing find each."""
