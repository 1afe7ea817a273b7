"""Examines whether a Redis can be a hub, and advises how to mend it if not."""
