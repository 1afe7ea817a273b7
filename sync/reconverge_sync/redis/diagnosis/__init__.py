"""Whether a Redis can be a hub, and what to mend where it cannot."""
