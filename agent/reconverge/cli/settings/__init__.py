"""`reconverge settings` and `reconverge switch`: what every agent of a namespace obeys."""
