"""The simulation: its world, its figures and its fuzz."""
