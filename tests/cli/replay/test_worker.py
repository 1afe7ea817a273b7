"""Goal: what a node of a replay writes down is when it decided, also where it goes on late.

Method: the parts of a node's work, on a hub in memory; what goes on in between, the test does.
"""

from __future__ import annotations

import asyncio
import ctypes
import multiprocessing
from array import array

from reconverge import Agent, Limit
from reconverge.cli.replay.worker import Gauge, NodeHistory, ReplayPlan, Share, Timed, _Pace, _Requests, answered
from reconverge.clock import SystemClock


async def test_a_request_is_dated_by_when_it_was_decided() -> None:
    """And not by when its observer goes on, before which a loop with many requests does much else."""
    async with Agent("memory://") as agent:
        limiter = agent.limit("api", "5/minute")
        request = limiter.control.enforcement.on.asking.request("ada", 1, None, 0, marks=True)
        deciding = asyncio.create_task(answered(limiter, request))
        await asyncio.sleep(0)
        busy_ns = SystemClock.monotonic_ns()
        _, _, decided_ns = await deciding

    assert decided_ns <= busy_ns


def test_a_node_that_lags_settles_what_is_over_before_the_next_request() -> None:
    """The first of two requests uses all of the limit once it is over, which it is when the second is made late."""
    limit = Limit.parse("10/day", algorithm="token-bucket")
    plan = ReplayPlan(limit, ("strict",), ("run",), ("timed",), 1, False, 0.1, settle_after_ns=0, stay_until_ns=0)
    share = Share(array("q", (0, 1)), ["ada", "ada"], array("q", (5, 5)), array("q", (5, 0)))
    history, parent = NodeHistory(), multiprocessing.Pipe()[0]
    with Agent("memory://") as agent:
        limiter, timed = agent.limit("run", limit), Timed(agent.limit("timed", limit))
        requests = _Requests(plan, share, [limiter], [timed], [history], _Pace(0, parent))
        asyncio.run(requests.make_all(Gauge(ctypes.c_longlong(), [ctypes.c_longlong()])))

    assert [True, False] == [bool(each) for each in history.allowed]
