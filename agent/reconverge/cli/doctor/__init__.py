"""`reconverge doctor`: what is wrong with a hub, and how to mend it."""
