"""The limiters that applications use: for limits on a rate, for limits on work in progress, and their base class."""
