"""Stores contracts in books: the interface `Book`, a book in memory, a book at a hub, and the reader on each node."""
