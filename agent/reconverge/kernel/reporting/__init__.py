"""What cells tell the hub, in which order, and what they make of its answers."""
