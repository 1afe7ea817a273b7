"""What each customer may use: how it is said, kept, changed and decided."""
