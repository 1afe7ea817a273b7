"""Processes of a fleet that sheds: `python -m tests.support.programs.shedders NAME HUB`, as `agents` does."""

from __future__ import annotations

import sys

from reconverge import Agent
from reconverge.shedding import FleetShedder, Stack
from tests.support.programs.agents import say


def floods(hub: str, capacity: str) -> None:
    """For each line `CLASS NUMBER`, makes that many requests of that class, and prints the result.

    That is: the number of admissions, the state of the agent, the admissions in the fullest window that is remembered,
    and the layers that refused.
    """
    agent = Agent(hub, policy="strict", sync_interval=0.05, exchange_timeout=0.5, lease_ttl=2.0, stop_timeout=0.5)
    shedder = FleetShedder(agent, capacity)
    stack = Stack(shedder)
    say("ready")
    for line in sys.stdin:
        name, number = line.split()
        admissions = [stack.enter("", name) for _ in range(int(number))]
        fullest = max(shedder.memories[stack.classes.rank(name)]._counts, default=0)
        refused_by = sorted({each.refused_by for each in admissions if each.refused_by is not None})
        say(sum(map(bool, admissions)), agent.health().state, fullest, *refused_by)
    agent.stop()


if __name__ == "__main__":
    program, *arguments = sys.argv[1:]
    globals()[program](*arguments)
