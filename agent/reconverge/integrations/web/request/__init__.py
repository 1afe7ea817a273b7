"""The request as rules read it: its key, its address and its path."""
