"""The cost of contracts for a node that has many customers."""
