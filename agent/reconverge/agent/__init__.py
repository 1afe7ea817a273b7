"""The `Agent` that programs use, which is one node of a fleet, and the parts of which it is made."""

from reconverge.agent.agent import Agent

__all__ = ["Agent"]
