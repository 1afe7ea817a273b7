"""The runtime: pauses, owners, and how often the log repeats a fact."""
