"""The command `reconverge doctor`: finds the faults of a hub, and prints a remedy for each."""
