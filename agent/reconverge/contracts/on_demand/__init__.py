"""Customers whose pages are fetched when they are met."""
