"""Answers of guards and frameworks, recorded as data: a change of how they decide must not change them."""
