"""Goal: a fleet that asks one real Redis admits no more than it may, however its requests are spread.

Method: processes with one agent or several each; keys side by side, each asked about at random moments and agents at
twice its limit, and keys that are new to all agents asked about on all of them at once. `python -m bench.exact_windows`
has more windows of the same, and says how many of them are exactly those of a central limiter.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import Barrier

import pytest

from bench.exact_windows import QUOTAS, Found, Load, measured
from reconverge import Agent, Limit, RateLimiter
from reconverge.limit import FIXED_WINDOW
from tests.support.servers import RedisServer

pytestmark = pytest.mark.slow  # fleets of processes

PATIENT_S = 5.0
"""So long that no request is left to memory because the machine is busy."""
DAY_S = 86_400.0
AGENTS = 16
QUOTA = 5


@pytest.mark.parametrize(
    "load",
    [
        Load(4, "strict", keys=6, windows=3, new_keys=6, within_s=PATIENT_S),
        Load(16, "balanced", keys=6, windows=3, new_keys=6, within_s=PATIENT_S),
        Load(32, "strict", keys=4, windows=3, new_keys=8, within_s=PATIENT_S),
    ],
    ids=lambda load: f"{load.nodes}-{load.policy}",
)
def test_processes_that_ask_admit_no_more_than_they_may(load: Load) -> None:
    """Strict never one more than the limit, of new keys neither; balanced never more than it promises."""
    found = measured(load)

    assert set(QUOTAS) == {each.quota for each in found}
    assert [] == [each for each in found if each.broken or (load.policy == "strict" and _exceeds(each))]
    assert all(each.waited > 0 for each in found)
    assert all(each.admitted > 0 and each.windows > load.windows for each in found)


def _exceeds(found: Found) -> bool:
    return found.most_over > 0 or found.new_most > found.quota


@pytest.fixture
def limiters(redis_server: RedisServer) -> Iterator[list[RateLimiter]]:
    """Of agents whose exchanges have a thread each."""
    with ExitStack() as stack:
        agents = [stack.enter_context(Agent(redis_server.url)) for _ in range(AGENTS)]
        limit = Limit(QUOTA, DAY_S, algorithm=FIXED_WINDOW)
        yield [agent.limit("login", limit, policy="strict") for agent in agents]


def test_threads_that_ask_about_a_new_key_at_once_admit_no_more_than_the_quota(limiters: list[RateLimiter]) -> None:
    """Each of sixteen agents is asked twice, on a thread of its own for each request."""
    threads = 2 * len(limiters)
    barrier = Barrier(threads)

    def ask(number: int) -> bool:
        barrier.wait()
        return limiters[number % len(limiters)].ask_blocking("ada", within=PATIENT_S).allowed

    with ThreadPoolExecutor(threads) as pool:
        admitted = sum(pool.map(ask, range(threads)))

    assert admitted <= QUOTA
