"""Which keys have a cell, and what is kept of the others."""
