"""Baselines: the usual alternatives to our agent. Every scenario has to catch some of them."""
