"""One node of a fleet: the `Agent` that programs use, and the parts that it is made of."""

from reconverge.agent.agent import Agent

__all__ = ["Agent"]
