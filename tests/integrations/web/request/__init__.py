"""What a rule asks of a request: its key, its address, its path."""
