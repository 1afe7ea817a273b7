"""One node of a fleet: the `Agent` that programs use, and the parts of which it is made."""

from reconverge.agent.agent import Agent

__all__ = ["Agent"]
