"""A node of a fleet that a console shows: `python -m tests.support.programs.console_node KEY HUB`."""

from __future__ import annotations

import sys
import threading

from reconverge import Agent
from tests.support.programs.agents import say

PAUSE_S = 0.05


def works(key: str, hub: str) -> None:
    """Makes more requests than the limit admits, until the test is over."""
    agent = Agent(hub, namespace="shop", sync_interval=0.05)
    login = agent.limit("login", "2/hour", policy="strict")
    say("works")
    over = threading.Event()
    threading.Thread(target=_wait_for_the_end, args=(over,), daemon=True).start()
    while not over.wait(PAUSE_S):
        login.hit(key)
    agent.stop()


def _wait_for_the_end(over: threading.Event) -> None:
    sys.stdin.read()
    over.set()


if __name__ == "__main__":
    works(sys.argv[1], sys.argv[2])
