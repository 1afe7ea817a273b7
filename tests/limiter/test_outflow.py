"""Goal: four processes on one Redis let out what waits at the rate of the limit, steadily, and never faster.

Method: real processes in which more wait than can go, on a clock that they share. The figures are those of ten seconds
after they have met; whatever a busy machine does to timers, a process makes up for only fifty milliseconds of it, and
what is beyond that is lost: each says how long that was.
"""

from __future__ import annotations

import json
from contextlib import ExitStack

import pytest

from reconverge.clock import SECOND_NS
from reconverge.kernel.algorithms.paced import CATCH_UP_NS
from tests.support.programs.process import Process
from tests.support.servers import RedisServer

PROCESSES = 4
SECONDS = 10.0
WINDOWS_S = (0.1, 0.5, 1.0, 2.0, 5.0)


def outflow(url: str, limit: dict[str, object], waiters: list[int]) -> tuple[list[list[float]], list[float]]:
    """When each of the processes let something out, once all had met; and for how many seconds each stood still."""
    with ExitStack() as stack:
        processes = [
            stack.enter_context(
                Process("saturate", url, json.dumps({"limit": limit, "waiters": count}), module="pacers")
            )
            for count in waiters
        ]
        for process in processes:
            assert "met" == process.says()
        for process in processes:
            process.go_on()
        said = [json.loads(process.ends()[1][-1]) for process in processes]
        return [each["moments"] for each in said], [each["stalled"] for each in said]


def most_at_once(moments: list[float], window_s: float) -> int:
    """The most that was let out in any window of that length."""
    first = most = 0
    for last, moment in enumerate(moments):
        while moment - moments[first] >= window_s:
            first += 1
        most = max(most, last - first + 1)
    return most


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limit", "waiters"),
    [
        ({"quota": 100, "window": 1, "algorithm": "leaky-bucket"}, [5, 5, 5, 5]),
        ({"quota": 10, "window": 1, "algorithm": "leaky-bucket", "burst": 1}, [8, 4, 2, 2]),
    ],
    ids=["100 per second", "10 per second, and a bucket of one"],
)
def test_the_outflow_of_four_processes_is_the_rate(
    redis_server: RedisServer, limit: dict[str, object], waiters: list[int]
) -> None:
    """Within one percent over ten seconds, give or take the request that each has ahead; over no window above it."""
    rate = float(str(limit["quota"]))
    catch_up_s = CATCH_UP_NS / SECOND_NS

    released, stalled_s = outflow(redis_server.url, limit, waiters)

    begin = max(moments[0] for moments in released)
    moments = sorted(moment for each in released for moment in each if begin <= moment < begin + SECONDS)
    lost = sum(len(each) / SECONDS * away_s for each, away_s in zip(released, stalled_s, strict=True))
    assert rate * SECONDS * 0.99 - PROCESSES - lost <= len(moments) <= rate * SECONDS + PROCESSES
    for window_s in WINDOWS_S:
        assert most_at_once(moments, window_s) <= rate * (window_s + catch_up_s) + PROCESSES
