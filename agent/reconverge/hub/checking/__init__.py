"""Checks of hubs: a trial exchange, and a plausibility check of every answer."""
