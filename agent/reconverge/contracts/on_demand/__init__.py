"""Fetches the contracts of customers when their first request comes, in pages of many customers each."""
