"""Goal: what a node of ours is asked about it answers, or says that it cannot.

Method: one node that is full of keys, whose hub is away.
"""

from __future__ import annotations

from pathlib import Path

from chaos.fleet.contestant import Ours
from chaos.fleet.plan import Plan
from chaos.judge.history import Recorder
from chaos.names import OURS
from reconverge.clock import SystemClock
from reconverge.limit import FIXED_WINDOW, Limit


def plan_of(directory: Path, keys_max: int) -> Plan:
    """A node with room for so many keys."""
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
        keys_max=keys_max,
        flooded=(),
        third_party=False,
        seed=7,
        obeys=False,
        agents=1,
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
