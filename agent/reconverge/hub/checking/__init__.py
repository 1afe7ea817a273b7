"""Whether a hub answers, and whether its answers can be believed."""
