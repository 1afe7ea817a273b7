"""Limits over several regions, each with a hub of its own: a bridge borrows capacity for its region and lends it."""
