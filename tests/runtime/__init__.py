"""What the runtime gives all parts: pauses, owners, and what the log says how often."""
