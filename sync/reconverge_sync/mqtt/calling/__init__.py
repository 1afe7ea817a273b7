"""Members' calls to the leader beside exchanges, and its replies."""
