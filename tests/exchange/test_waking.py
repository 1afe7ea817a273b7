"""Goal: a decision wakes the loop only if an exchange is due before the loop looks by itself, and then it does wake it.

Method: the real kernel and the real syncer under a clock of the test's own. The loop sleeps until the moment that the
syncer says, as the driver has it do, and the calls that wake it are counted.
"""

from __future__ import annotations

from random import Random

import pytest

from reconverge.clock import SECOND_NS
from reconverge.limit import Limit
from reconverge.policies import BALANCED, STRICT
from reconverge.simulation.explore.node import INTERVAL_NS
from tests.support.effort import tried
from tests.support.kernel.talker import Talker, Talkers

NEVER_NEAR = Limit(10**9, 86_400)
SCARCE = Limit(40, 2)
SHORTEST_NS = INTERVAL_NS // 10
SEED_STEPS = 200


class Loop:
    """The loop of one node, which exchanges what is due when it looks, and sleeps until the next look."""

    def __init__(self, world: Talkers) -> None:
        self.world = world
        (self.node,) = world.nodes
        self.woken = self.looks = self.exchanges = 0
        self.until_ns = 0
        """When it looks by itself."""
        self.node.kernel.wake = self._wake
        self._looks_and_sleeps()

    def _wake(self) -> None:
        self.woken += 1

    @property
    def now_ns(self) -> int:
        """The moment."""
        return self.world.clock.monotonic_ns()

    def begins_to_look(self) -> bool:
        """Be awake, and put on its way what is due; returns whether anything is."""
        self.looks += 1
        self.node.syncer.stay_awake()
        said = self.node.syncer.due_ns(self.now_ns) <= self.now_ns and self.node.sends() is not None
        self.exchanges += said
        return said

    def hears_and_sleeps(self) -> None:
        """Take in the answer, if there is one, and sleep until there is something to do."""
        self.node.reaches(self.world.hub)
        self.node.hears()
        syncer = self.node.syncer
        self.until_ns = max(self.now_ns, syncer.looks_ns(self.now_ns))
        syncer.attend(self.until_ns + SECOND_NS)
        syncer.sleep_until(self.until_ns)

    def _looks_and_sleeps(self) -> None:
        self.begins_to_look()
        self.hears_and_sleeps()

    def passes(self, ns: int) -> None:
        """Time passes, and the loop looks when it said it would; at once if it was woken before."""
        until_ns, woken = self.now_ns + ns, self.woken
        while self.until_ns <= until_ns or self.woken > woken:
            if self.woken == woken:
                self.world.passes(ns=max(0, self.until_ns - self.now_ns))
            woken = self.woken
            self._looks_and_sleeps()
        self.world.passes(ns=until_ns - self.now_ns)

    def wakes_for(self, *keys: str, every_ns: int = 0) -> int:
        """How often one request of each of these keys wakes the loop, with so much time after each."""
        before = self.woken
        for key in keys:
            woken = self.woken
            assert self.node.table.allow(key)
            if self.woken > woken:
                self._looks_and_sleeps()
            self.passes(every_ns)
        return self.woken - before


def loop_of(limit: Limit = NEVER_NEAR) -> Loop:
    """A node in touch with its hub that has been asked about a key lately."""
    loop = Loop(Talkers(limit, BALANCED, nodes=1, lease_ns=600 * SECOND_NS))
    for _ in range(3):
        loop.wakes_for("ada", every_ns=2 * INTERVAL_NS)
    return loop


def test_the_first_charge_after_an_exchange_wakes_nothing_as_long_as_requests_come() -> None:
    """The loop looks by itself when the next exchange may be due, and once for each."""
    loop = loop_of()
    loop.wakes_for("ada", every_ns=2 * SHORTEST_NS)
    looks, exchanges = loop.looks, loop.exchanges

    woken = loop.wakes_for(*["ada"] * 100, every_ns=2 * SHORTEST_NS)

    assert 0 == woken
    assert loop.exchanges - exchanges >= 19
    assert loop.looks - looks <= loop.exchanges - exchanges + 1


def test_one_new_key_after_another_wakes_nothing_and_is_told_of_as_soon_as_may_be() -> None:
    """After a batch that left ahead of time the loop looks when another one may."""
    loop = loop_of()
    loop.wakes_for("new")
    exchanges = loop.exchanges

    woken = loop.wakes_for(*(f"new {number}" for number in range(100)), every_ns=SHORTEST_NS // 3)

    assert 0 == woken
    assert loop.exchanges - exchanges >= 32


def test_a_charge_while_an_exchange_is_under_way_wakes_nothing() -> None:
    """The loop looks once more what is due before it sleeps."""
    loop = loop_of()
    loop.node.table.allow("ada")
    loop.world.passes(ns=INTERVAL_NS)
    assert loop.begins_to_look()
    woken = loop.woken

    loop.node.table.allow("ada")
    loop.node.table.allow("new")
    under_way = loop.woken - woken
    loop.hears_and_sleeps()

    assert 0 == under_way
    assert loop.until_ns <= loop.now_ns + SHORTEST_NS


def test_new_keys_wake_nothing_while_the_hub_does_not_answer() -> None:
    """No exchange begins before the next attempt, whatever wants one."""
    loop = loop_of()
    loop.node.table.allow("ada")
    loop.world.passes(ns=INTERVAL_NS)
    assert loop.begins_to_look()
    loop.node.gives_up()
    loop.hears_and_sleeps()
    woken = loop.woken

    loop.node.table.allow("new")

    assert loop.until_ns > loop.now_ns
    assert 0 == loop.woken - woken


def test_an_idle_node_looks_only_to_exchange() -> None:
    """In a minute without requests the loop wakes up for signs of life, and for nothing else."""
    loop = loop_of()
    loop.passes(2 * INTERVAL_NS)
    looks, exchanges = loop.looks, loop.exchanges

    loop.passes(60 * SECOND_NS)

    assert loop.exchanges - exchanges == loop.looks - looks <= 70


def test_the_first_charge_after_the_loop_went_to_sleep_wakes_it_and_no_other_does() -> None:
    """It is reported at once, as the interval is over, and the next ones in their turn."""
    loop = loop_of()
    loop.passes(5 * INTERVAL_NS)
    exchanges = loop.exchanges

    woken = [loop.wakes_for("ada", every_ns=SHORTEST_NS) for _ in range(5)]

    assert [1, 0, 0, 0, 0] == woken
    assert exchanges + 1 == loop.exchanges


def test_a_new_key_wakes_a_loop_that_sleeps_until_the_next_regular_exchange() -> None:
    """An exchange ahead of time is not kept waiting for a look."""
    loop = loop_of()
    loop.wakes_for("ada", every_ns=3 * SHORTEST_NS)

    assert 1 == loop.wakes_for("new")


def test_a_loop_that_is_gone_is_missed_by_the_next_charge() -> None:
    """Its promise to look does not count any more."""
    loop = loop_of()
    loop.wakes_for("ada", every_ns=2 * SHORTEST_NS)
    loop.node.syncer.part()
    woken = loop.woken

    loop.node.table.allow("ada")

    assert 1 == loop.woken - woken


def test_another_loop_that_makes_no_such_promise_is_woken_by_the_first_charge() -> None:
    """The promise of the loop before it does not hold for it, asleep or at work."""
    loop = loop_of()
    loop.wakes_for("ada", every_ns=3 * INTERVAL_NS)
    loop.begins_to_look()
    syncer, woken = loop.node.syncer, loop.woken
    syncer.abandon(now_ns=loop.now_ns)
    syncer.attend(loop.now_ns + SECOND_NS)

    loop.node.table.allow("ada")

    assert 1 == loop.woken - woken


def test_a_loop_that_does_not_come_back_is_missed_by_the_first_charge_after_its_time() -> None:
    """A promise to look has an end, after which a decision calls for a loop again."""
    loop = loop_of()
    loop.wakes_for("ada")
    loop.world.passes(ns=loop.until_ns - loop.now_ns + SECOND_NS)
    woken = loop.woken

    loop.node.table.allow("bob")

    assert 1 == loop.woken - woken


def test_a_charge_that_comes_as_the_loop_goes_to_sleep_wakes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes on another thread, after the loop has seen what is due and before it says how long it sleeps."""
    loop = loop_of()
    loop.passes(5 * INTERVAL_NS)
    syncer, woken = loop.node.syncer, loop.woken
    sees_what_is_due = syncer.due_ns

    def sees_what_is_due_and_is_overtaken(now_ns: int) -> int:
        due_ns = sees_what_is_due(now_ns)
        assert loop.node.table.allow("ada")
        return due_ns

    monkeypatch.setattr(syncer, "due_ns", sees_what_is_due_and_is_overtaken)
    syncer.stay_awake()
    syncer.sleep_until(syncer.looks_ns(loop.now_ns))

    assert 1 == loop.woken - woken


@pytest.mark.parametrize("seed", range(tried(20, long=200)))
def test_no_exchange_is_due_before_the_loop_looks_without_a_decision_that_wakes_it(seed: int) -> None:
    """A late loop begins each exchange as soon as one that always looks."""
    draw = Random(seed)
    policy = draw.choice([BALANCED, STRICT])
    loop = Loop(Talkers(draw.choice([NEVER_NEAR, SCARCE]), policy, nodes=1, chance=draw.random()))

    for step in range(SEED_STEPS):
        woken = loop.woken
        _anything(draw, loop.node, step)
        if loop.woken == woken:
            assert loop.node.syncer.due_ns(loop.now_ns) >= loop.until_ns
        if loop.woken > woken or draw.random() < 0.3:
            loop.begins_to_look()
            if draw.random() < 0.1:
                loop.node.gives_up()
            for _ in range(draw.choice([0, 0, 2])):
                _anything(draw, loop.node, step)
            loop.hears_and_sleeps()
        loop.passes(draw.choice([0, 1, SHORTEST_NS // 3, SHORTEST_NS, INTERVAL_NS, 12 * INTERVAL_NS]))


def _anything(draw: Random, node: Talker, step: int) -> None:
    key = draw.choice(["ada", "ada", "bob", f"new {step}"])
    what = draw.random()
    if what < 0.7:
        node.table.allow(key, draw.choice([1, 1, 3]))
    elif what < 0.8:
        node.table.test(key)
    elif what < 0.9:
        node.table.reset(key)
    else:
        node.table.refund(key, 1)
