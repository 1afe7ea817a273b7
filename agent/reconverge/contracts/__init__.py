"""Contracts with customers: their plans and limits, changes of these while the fleet runs, and customers' use."""
