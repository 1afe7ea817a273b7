"""`reconverge doctor`, for each kind of hub."""
