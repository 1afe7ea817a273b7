"""Goal: what a node of ours is asked about it answers, or says that it cannot.

Method: one node whose hub is away: full of keys, and on the edge of a window.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.fleet.contestant import Ours
from chaos.fleet.plan import Plan
from chaos.judge.history import Recorder
from chaos.names import OURS
from reconverge import RateLimiter, Usage
from reconverge.clock import ManualClock, SystemClock
from reconverge.limit import FIXED_WINDOW, Limit


def plan_of(directory: Path, keys_max: int) -> Plan:
    return Plan(
        rivals_url="",
        shards=1,
        node=0,
        url="redis://127.0.0.1:1",
        directory=str(directory),
        contestants=(OURS,),
        program="thread",
        limit=Limit(10, 3600.0, algorithm=FIXED_WINDOW),
        policy="available",
        cold_allowance=1.0,
        interval_s=0.1,
        timeout_s=0.4,
        lease_s=30.0,
        silence_s=1.0,
        keys_max=keys_max,
        flooded=(),
        third_party=False,
        slots=0,
        slots_lease_s=2.0,
        alone=False,
        seed=7,
        obeys=False,
        agents=1,
        followed=(),
        load_ns=0,
        requests=(),
    )


def test_a_full_node_has_nothing_to_say_of_a_key_without_a_place(tmp_path: Path) -> None:
    """It has counted one key, has room for no other, and raises nothing."""
    ours = Ours(OURS, plan_of(tmp_path, 1), Recorder(tmp_path, 0), SystemClock())

    ours.decide("ada", 3)
    told, not_told = ours.used("ada"), ours.used("bob")
    ours.agent.stop()

    assert told is not None
    assert 3 == told[1]
    assert not_told is None


def test_the_window_and_what_was_used_of_it_are_told_of_the_same_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node's exchange may open the next window between two looks, as `key-flood` has met it under load."""
    clock = ManualClock()
    ours = Ours(OURS, plan_of(tmp_path, 1), Recorder(tmp_path, 0), clock)
    admitted_in = ours.decide("ada", 3).epoch
    usage = RateLimiter.usage
    edges = iter((3600.0, 0.0))

    def usage_before_the_edge(limiter: RateLimiter, key: str) -> Usage:
        used = usage(limiter, key)
        clock.advance(next(edges))
        ours.decide("ada", 0)
        return used

    monkeypatch.setattr(RateLimiter, "usage", usage_before_the_edge)
    told = ours.used("ada")
    ours.agent.stop()

    assert (admitted_in + 1, 0) == told
