"""What metrics and the dashboard show."""
