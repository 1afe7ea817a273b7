"""Stores contracts: the interface of a book, a book in memory and one at a hub, their pages, and the nodes' reader."""
