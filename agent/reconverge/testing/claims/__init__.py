"""Promises of every hub, claim by claim, and the scenes in which the claims are tried."""
