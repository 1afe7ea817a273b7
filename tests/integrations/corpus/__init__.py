"""What guards and frameworks answer, recorded as data: a change of how they decide must not change it."""
