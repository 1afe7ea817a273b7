"""What members ask the leader beside exchanges, and what it answers."""
