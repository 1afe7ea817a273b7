"""The threads on which agents exchange, which `threading` does not list."""

from __future__ import annotations

import sys
from types import FrameType

from reconverge import Agent
from reconverge.exchange.thread_runner import ThreadRunner
from reconverge.runtime import process


def running_threads() -> list[ThreadRunner]:
    """Returns the threads that run, even if no agent knows them, and those that are about to."""
    found: dict[ThreadRunner, None] = {}
    for frame in list(sys._current_frames().values()):
        caller: FrameType | None = frame
        while caller is not None:
            if caller.f_code is ThreadRunner.run.__code__:
                found[caller.f_locals["self"]] = None
            caller = caller.f_back
    for agent in list(process._agents):
        if isinstance(agent, Agent):
            for runner in agent._lifecycle.alive:
                if isinstance(runner, ThreadRunner):
                    found[runner] = None
    return [runner for runner in found if runner.alive]
