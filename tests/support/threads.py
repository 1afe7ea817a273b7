"""The threads on which agents exchange; `threading` knows nothing of them."""

from __future__ import annotations

import sys
from types import FrameType

from reconverge import Agent
from reconverge.exchange.thread_runner import ThreadRunner
from reconverge.runtime import process


def running_threads() -> list[ThreadRunner]:
    """Those that run, whether or not an agent knows of them, and those that are about to."""
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
