"""The limiters that applications use: for rates, for work in progress, and their base class."""
