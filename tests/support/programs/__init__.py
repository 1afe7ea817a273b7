"""Programs that tests run as processes of their own, and how they are spoken to."""
