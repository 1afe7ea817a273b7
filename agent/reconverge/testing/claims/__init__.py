"""What every hub promises, claim by claim, and the scenes in which the claims are tried."""
