"""The commands `reconverge status` and `reconverge top`: show the hub's data on a fleet, once and live."""
