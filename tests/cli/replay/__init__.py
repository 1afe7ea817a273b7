"""`reconverge replay`, and its parts."""
