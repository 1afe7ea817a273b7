"""Explores small worlds of real nodes: every order of a few events, judged by an observer of everything."""
