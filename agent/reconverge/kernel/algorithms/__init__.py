"""The arithmetic of each algorithm: how the charges to a key count over time, and how much of an allowance they use."""
