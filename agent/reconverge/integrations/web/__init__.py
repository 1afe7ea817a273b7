"""The common part of all web integrations: rules, the guard that decides by them, and response fields."""
