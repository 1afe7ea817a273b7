"""The command `reconverge doctor`: finds the faults of a hub, and says how to mend them."""
