"""What was written down, and which promises were kept according to that."""
