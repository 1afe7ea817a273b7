"""Where contracts are kept: the port, a book in memory and one at a hub, what travels, and what nodes read."""
