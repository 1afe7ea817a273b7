"""The commands `reconverge inspect` and `reconverge reset`, about one key of the limits that a program declares."""
