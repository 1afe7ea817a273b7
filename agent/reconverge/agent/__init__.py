"""One node of a fleet: the `Agent` that programs hold, and what it is put together from."""

from reconverge.agent.agent import Agent

__all__ = ["Agent"]
