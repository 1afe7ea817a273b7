"""`reconverge status` and `reconverge top`: what the hub knows of a fleet, once and live."""
