"""The judge of chaos, and what it goes by."""
