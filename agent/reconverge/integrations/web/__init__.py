"""Rules, the guard that decides by them, and response fields: shared by all web integrations."""
