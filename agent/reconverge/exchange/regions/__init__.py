"""Limits that span regions with hubs of their own: a bridge for each region borrows capacity and lends it there."""
