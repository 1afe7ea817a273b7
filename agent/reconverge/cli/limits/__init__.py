"""`reconverge inspect` and `reconverge reset`: one key of the limits that a program declares."""
