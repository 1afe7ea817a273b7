"""Goal: every agent of a forked child is told of the fork.

Method: real forks of this process; the child tells by its status what it has found.
"""

from __future__ import annotations

import os

from reconverge.runtime.process import register
from tests.support.waiting import exit_code_of


class BrokenAgent:
    """An agent whose clock fails, say."""

    def start_over_after_fork(self) -> None:
        """Fails in the child."""
        raise OSError("no clock")

    def stop_for_good(self, timeout_s: float) -> None:
        """Has nothing to say."""


class Told(BrokenAgent):
    """An agent that counts what it is told."""

    forks = 0

    def start_over_after_fork(self) -> None:
        """Counts."""
        self.forks += 1


def test_an_agent_that_fails_after_a_fork_keeps_no_other_from_starting_over() -> None:
    """Or the others would go on with the lines and counts of the parent."""
    agents = [Told(), BrokenAgent(), Told(), BrokenAgent(), Told()]
    for agent in agents:
        register(agent, sigterm=False)
    child = os.fork()
    if not child:
        os._exit(sum(agent.forks for agent in agents if isinstance(agent, Told)))

    assert 3 == exit_code_of(child)
