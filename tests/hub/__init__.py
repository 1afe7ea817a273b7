"""What every hub promises, and what a node makes of a hub that breaks a promise."""
