"""What is claimed, and shown to be so."""
