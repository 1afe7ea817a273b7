"""Explores small worlds of real nodes: tries every order of a few events, and checks the promises after each."""
