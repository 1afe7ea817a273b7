"""The decisions of a limiter, under one name for import."""

from reconverge.kernel import Decision, Usage

__all__ = ["Decision", "Usage"]
