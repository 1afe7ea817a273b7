"""Shedding by how loaded a worker is."""
