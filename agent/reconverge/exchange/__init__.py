"""When, what and by whom a node exchanges with its hub."""
