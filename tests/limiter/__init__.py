"""Asking one limit: modes, reservations, many at once, waiting."""
