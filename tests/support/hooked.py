"""Installs hooks until a block ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from reconverge import Agent
from reconverge.hooks import Hooks


@contextmanager
def hooked(agent: Agent, *hooks: Hooks) -> Iterator[None]:
    """Reports the events within the block to `hooks`."""
    for each in hooks:
        agent.add_hooks(each)
    thread = agent._hook_dispatcher._thread
    try:
        yield
    finally:
        for each in hooks:
            agent.remove_hooks(each)
        if thread is not None:
            thread.join()
