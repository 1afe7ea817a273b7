"""Running commands, and reading what they print."""
