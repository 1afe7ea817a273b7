"""What cells report, in which order, and what they make of the answers."""
