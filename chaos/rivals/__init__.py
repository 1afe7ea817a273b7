"""Baselines: what is usually done instead of ours. Every scenario has to catch some of them."""
