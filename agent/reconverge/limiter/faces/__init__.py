"""What applications ask: the limiter of a rate, that of what is in progress, and what both have in common."""
