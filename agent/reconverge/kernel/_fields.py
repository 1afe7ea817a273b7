"""Where the compiled kernel looks for numbers that Python's classes keep; in Python there is nothing to it."""


class ShardFields:
    """What `ShardState` keeps its numbers in."""


class TallyFields:
    """What `Tally` keeps its numbers in."""

    __slots__ = ("charged", "refunded")

    charged: int
    refunded: int
