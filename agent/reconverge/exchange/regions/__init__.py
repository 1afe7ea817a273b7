"""Limits that span several regions, each with a hub: one bridge for each region borrows capacity and lends it there."""
