"""The words in which a limiter answers."""

from reconverge.kernel import Decision, Usage

__all__ = ["Decision", "Usage"]
