"""Goal: a node reports a key seldom while no node needs the news, and at once when one does.

Method: two nodes of a limit of ten thousand a minute that exchange ten times a second with one hub. A key far from its
limit may be silent for a sixteenth of the window, 3.75 seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from reconverge.clock import SECOND_NS
from reconverge.hub.report import Batch, Recall
from reconverge.kernel.reporting.silence import speaks_below
from reconverge.limit import Limit
from reconverge.policies import BALANCED, STRICT
from tests.support.kernel.talker import Talker, Talkers

QUOTA: Final = 10_000
WINDOW_S: Final = 60.0
SILENCE_S: Final = WINDOW_S / 16
ALGORITHMS: Final = ("fixed-window", "sliding-window", "token-bucket")
FEW: Final = 2
"""The requests of a node in an interval, far below what its allowance has room for."""


class SilentNodes(Talkers):
    """Nodes that may be silent for up to ten seconds; the window has begun when the first of them is made."""

    def __init__(
        self,
        algorithm: str = "fixed-window",
        *,
        quota: int = QUOTA,
        window_s: float = WINDOW_S,
        nodes: int = 2,
        silence_s: float = 10.0,
        lease_s: float = 600.0,
        strict: bool = False,
    ) -> None:
        super().__init__(
            Limit(quota, window_s, algorithm=algorithm),
            STRICT if strict else BALANCED,
            nodes=nodes,
            lease_ns=int(lease_s * SECOND_NS),
            silence_max_ns=int(silence_s * SECOND_NS),
        )
        self.batches: list[Batch] = []
        self.recalled: dict[Talker, list[Recall]] = {node: [] for node in self.nodes}

    def interval(self, *requests: int) -> None:
        """Each node gets its number of requests and exchanges, if it has something to report; then an interval ends."""
        for node, times in zip(self.nodes, requests, strict=True):
            node.admitted_of(times)
            batch = node.sends()
            if batch is not None:
                self.batches.append(batch)
                node.reaches(self.hub)
                answer = node.flight.answer if node.flight else None
                self.recalled[node] += () if answer is None else answer.recalls or ()
                node.hears()
        self.passes(0.1)

    def reports(self, seconds: float, *requests: int) -> int:
        """Returns how often the key is reported within `seconds`, if the nodes get so many requests an interval."""
        self.batches = []
        for _ in range(round(10 * seconds)):
            self.interval(*requests)
        return sum(cell.key == "ada" for batch in self.batches for cell in batch.cells)

    def grow_calm(self, *requests: int) -> None:
        """The nodes are asked for a while, until they are silent about the key."""
        self.reports(5, *requests)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_key_far_from_its_limit_is_reported_once_in_the_longest_silence(algorithm: str) -> None:
    """And not once an interval, in which it is charged."""
    fleet = SilentNodes(algorithm)
    fleet.grow_calm(FEW, FEW)
    talkative = SilentNodes(algorithm, silence_s=0.0)
    talkative.grow_calm(FEW, FEW)

    assert 2 * 4 * SILENCE_S * 10 <= talkative.reports(4 * SILENCE_S, FEW, FEW)
    assert 2 * 3 <= fleet.reports(4 * SILENCE_S, FEW, FEW) <= 2 * 4


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_all_is_counted_once_the_silence_ends(algorithm: str) -> None:
    """Each admitted request once, after the nodes have stopped in good order."""
    fleet = SilentNodes(algorithm)
    fleet.grow_calm(FEW, FEW)
    fleet.reports(2, FEW, 3 * FEW)

    for node in fleet.nodes:
        node.syncer.leave(fleet.clock.monotonic_ns())
    fleet.reports(0.5, 0, 0)

    assert fleet.totals().charged == sum(node.table.tallies[0].charged for node in fleet.nodes)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_charges_in_silence_are_counted_though_the_lease_has_ended(algorithm: str) -> None:
    """The node reports them under its next name: the window goes on, so it has not counted them by itself."""
    fleet = SilentNodes(algorithm, lease_s=WINDOW_S / 2)
    fleet.grow_calm(FEW, FEW)
    names = [node.syncer.node for node in fleet.nodes]
    for node in fleet.nodes:
        node.admitted_of(3 * FEW)
    reported = fleet.totals().charged

    fleet.passes(WINDOW_S / 2)
    fleet.reports(0.5, 0, 0)

    admitted = sum(node.table.admitted for node in fleet.nodes)
    assert not {node.syncer.node for node in fleet.nodes} & set(names)
    assert reported <= admitted - 2 * 3 * FEW
    assert admitted == fleet.totals().charged


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_key_that_had_no_request_for_long_does_not_wait_longer(algorithm: str) -> None:
    """Its looks get rarer while it has no request, but the hub counts its next charge within the longest silence."""
    fleet = SilentNodes(algorithm)
    fleet.grow_calm(FEW, FEW)
    fleet.reports(6 * SILENCE_S, 0, 0)
    before = fleet.totals().charged

    fleet.interval(1, 0)
    fleet.reports(SILENCE_S * 9 / 8, 0, 0)

    assert fleet.totals().charged == before + 1


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_an_eighth_of_the_headroom_ends_the_silence(algorithm: str) -> None:
    """The node reports with the next exchange, so that the hub's total lacks an eighth of what is left at most."""
    fleet = SilentNodes(algorithm)
    fleet.grow_calm(FEW, FEW)
    first = fleet.nodes[0]
    cell = first.table.cells["ada"]
    silent = first.table.meter.headroom(cell, fleet.clock.monotonic_ns()) - speaks_below(cell)

    assert 0 == fleet.reports(0.1, silent - FEW, 0)
    assert 1 == fleet.reports(0.1, QUOTA // 100, 0)  # a bucket has drained meanwhile


def test_the_next_window_begins_with_a_report() -> None:
    """Its allowances are granted anew."""
    fleet = SilentNodes("fixed-window")
    fleet.grow_calm(FEW, FEW)
    left_s = WINDOW_S - fleet.clock.wall_ns() / SECOND_NS % WINDOW_S
    fleet.reports(left_s - 0.2, FEW, FEW)

    assert 2 <= fleet.reports(0.5, FEW, FEW)


NEVER_SILENT: Final[dict[str, Callable[[], SilentNodes]]] = {
    "it is turned off": lambda: SilentNodes(silence_s=0.0),
    "it is no longer than an interval": lambda: SilentNodes(silence_s=0.1),
    "the window is short": lambda: SilentNodes(window_s=3.0, quota=500),
    "charges have dates": lambda: SilentNodes("sliding-log"),
    "it has few requests for each node": lambda: SilentNodes(quota=15),
}


@pytest.mark.parametrize("why", NEVER_SILENT)
def test_no_key_is_silent_if(why: str) -> None:
    """Each charge is reported with the next exchange."""
    world = NEVER_SILENT[why]()
    world.reports(0.5, 1, 1)

    assert [2] * 3 == [world.reports(0.1, 1, 1) for _ in range(3)]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_key_near_its_limit_is_reported_each_interval(algorithm: str) -> None:
    """Three quarters are used and needed, so each node needs the news of the other."""
    fleet = SilentNodes(algorithm)
    while sum(node.table.tallies[0].charged for node in fleet.nodes) < 0.85 * QUOTA:
        fleet.interval(100, 100)

    assert 2 * 5 <= fleet.reports(0.5, 100, 100)


@pytest.mark.parametrize("strict", [False, True], ids=["balanced", "strict"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_node_that_lacks_something_gets_it_from_a_silent_one(algorithm: str, strict: bool) -> None:
    """The hub recalls the key with its next answer to the other nodes: nothing is refused for a whole silence."""
    fleet = SilentNodes(algorithm, strict=strict)
    fleet.grow_calm(5, 1)
    holder, needy = fleet.nodes
    held = holder.allowance()

    before = needy.table.tallies[0].charged
    for _ in range(20):  # a node with nothing to report exchanges once a second
        fleet.interval(0, 1500)

    assert any(each.key == "ada" for each in fleet.recalled[holder])
    assert holder.allowance() < held
    assert needy.table.tallies[0].charged - before > 0.85 * QUOTA


def test_a_recall_goes_to_others_and_once_in_an_interval() -> None:
    """The node that lacks something hears nothing of its own want."""
    fleet = SilentNodes("fixed-window", nodes=3, strict=True)
    fleet.grow_calm(100, 1, 1)

    for _ in range(8):
        fleet.interval(0, 900, 0)

    holder, needy, other = fleet.nodes
    assert [] == fleet.recalled[needy]
    assert {"ada"} == {each.key for each in [*fleet.recalled[holder], *fleet.recalled[other]]}
    assert len(fleet.recalled[holder]) <= 8


def test_a_recall_that_is_lost_admits_nothing_more() -> None:
    """Without a word to the holder, the node that lacks something is refused until the silence is over."""
    fleet = SilentNodes("fixed-window", strict=True)
    fleet.grow_calm(100, 1)
    holder, needy = fleet.nodes

    for _ in range(round(10 * SILENCE_S)):
        needy.admitted_of(700)
        needy.exchanges_with(fleet.hub)
        fleet.passes(0.1)
    holder.admitted_of(QUOTA)

    assert sum(node.table.tallies[0].charged for node in fleet.nodes) <= QUOTA


def test_used_up_windows_are_reported_once_in_a_silence() -> None:
    """Refusals of a fixed window that is used up are no news."""
    fleet = SilentNodes("fixed-window")
    while sum([node.admitted_of(500) for node in fleet.nodes]):
        fleet.interval(0, 0)
    fleet.reports(1, 5, 5)

    assert fleet.reports(2 * SILENCE_S, 50, 50) <= 2 * 3


def test_a_silent_charge_wakes_a_loop_that_sleeps_for_good() -> None:
    """Otherwise no loop would look at the key when the silence is over."""
    fleet = SilentNodes("fixed-window", nodes=1)
    fleet.grow_calm(FEW)
    (node,) = fleet.nodes
    woken: list[bool] = []
    node.kernel.wake = lambda: woken.append(True)
    node.kernel.shards[0].attended_until_ns = 0
    node.kernel.look_around(0)

    node.admitted_of(1)

    assert [True] == woken


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_without_recalls_a_silence_lasts_two_seconds_at_most(algorithm: str) -> None:
    """Until the hub recalls keys again: hashed keys, for instance, cannot be recalled."""
    fleet = SilentNodes(algorithm)
    fleet.grow_calm(FEW, FEW)
    for node in fleet.nodes:
        node.kernel.report_recalled(0, None, fleet.clock.monotonic_ns())

    assert [2 * SECOND_NS] * 2 == [node.table.silence_ns for node in fleet.nodes]

    fleet.reports(SILENCE_S, FEW, FEW)

    assert [int(SILENCE_S * SECOND_NS)] * 2 == [node.table.silence_ns for node in fleet.nodes]
