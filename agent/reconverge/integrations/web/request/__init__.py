"""The request in the form that rules read: its key, its address and its path."""
