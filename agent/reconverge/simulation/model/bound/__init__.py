"""Binds the production code to the model: each step of a run must be an allowed step of an action of the model."""
