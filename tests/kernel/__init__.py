"""The kernel: decisions, and what cells report and learn."""
