"""Exports `Decision` and `Usage`, the results of a limiter, from the kernel."""

from reconverge.kernel import Decision, Usage

__all__ = ["Decision", "Usage"]
