"""`reconverge doctor`: the faults of a hub, and how to mend them."""
