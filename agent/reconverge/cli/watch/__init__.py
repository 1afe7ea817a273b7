"""The commands `reconverge status` and `reconverge top`: show what the hub knows of a fleet, once and live."""
