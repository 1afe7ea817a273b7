"""Goal: while the hub is away, a small quota in sliding windows goes on being admitted, and never beyond its capacity.

Method: real nodes and the real merge rule. Nodes lose the hub together or one by one, for windows at a time, while an
account of all admissions follows the limit; the time after which shares open is that of production.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from reconverge.clock import SECOND_NS, ManualClock
from reconverge.exchange import syncer
from reconverge.hub.headroom import SEALED_AFTER_S, SEALED_INTERVALS, SEALED_WINDOW_MAX_S
from reconverge.hub.report import ASKS, Batch, CellAnswer, CellReport, LimitReport
from reconverge.limit import Limit
from reconverge.limit.limit import SLIDING_WINDOW
from reconverge.policies import BALANCED, STRICT, Policy
from reconverge.simulation.explore.observer import TrueUse
from reconverge_sync.memory import MemoryHub
from reconverge_sync.merge.granting import grant
from reconverge_sync.merge.ledger import Entry, LimitRule
from tests.support.kernel.talker import MINUTE_BEGINS_S, Talker, Talkers

WINDOW_S = 60
POLICIES = [STRICT, BALANCED]


class Away(Talkers):
    """Nodes that ask about one key of a small quota, some of which may be cut off from the hub."""

    def __init__(
        self,
        quota: int = 5,
        nodes: int = 4,
        policy: Policy = STRICT,
        window_s: int = WINDOW_S,
        algorithm: str = SLIDING_WINDOW,
    ) -> None:
        limit = Limit(quota, window_s, algorithm=algorithm)
        super().__init__(limit, policy, nodes=nodes, lease_ns=10 * window_s * SECOND_NS)
        self.truth = TrueUse(limit, self.clock)
        self.most = 0.0
        self.admitted_by: Counter[Talker] = Counter()
        """How much each node has admitted since it last came to a window's beginning with all others."""
        self.cut: set[Talker] = set()
        for node in self.nodes:
            node.table.asks = True

    def tries(self, node: Talker, times: int = 1) -> int:
        """Lets a node decide, and ask if it is in doubt and not cut off; returns how many requests were admitted."""
        admitted = 0
        for _ in range(times):
            verdict = node.table.decide("ada", 1, self.clock.monotonic_ns())
            if not verdict.allowed and node not in self.cut:
                node.asks(node.table, "ada", 1)
                self.exchanges(node)
                for key, _ in node.stops_asking(node.table):
                    verdict = node.table.observe(key, self.clock.monotonic_ns())._replace(allowed=True)
            if verdict.allowed:
                self.truth.admitted(1, verdict.epoch, verdict.slice_number)
                admitted += 1
                self.admitted_by[node] += 1
            self.most = max(self.most, self.truth.excess())
        return admitted

    def exchanges(self, node: Talker) -> None:
        """Exchanges as soon as the node may; nothing arrives of a node that is cut off."""
        node.syncer.speak_up()
        if node in self.cut:
            node.sends()
            node.gives_up()
        else:
            self.passes(ns=node.due_in_ns)
            node.exchanges_with(self.hub)

    def goes_on(self, seconds: float, every_s: float = 5.0, times: int = 1) -> int:
        """Lets all nodes exchange each second, and try now and then; returns how many requests were admitted."""
        admitted, until_ns, turn = 0, self.clock.monotonic_ns() + round(seconds * SECOND_NS), 0
        while self.clock.monotonic_ns() < until_ns:
            self.passes(1)
            for node in self.nodes:
                self.exchanges(node)
            turn += 1
            if turn % every_s == 0:
                admitted += sum(self.tries(node, times) for node in self.nodes)
        return admitted

    def to_the_next_window(self) -> None:
        window_ns = self.limit.window_ns
        left_ns = window_ns - self.clock.wall_ns() % window_ns
        while left_ns > 0:
            self.passes(ns=min(left_ns, SECOND_NS))
            left_ns -= SECOND_NS
            for node in self.nodes:
                self.exchanges(node)
        self.admitted_by.clear()

    def entries(self) -> Iterator[Entry]:
        for place, cell in self.hub._shards[0].cells.items():
            if place[-1] == "ada":
                yield from cell.entries.values()


def shares_of(world: Away) -> list[int]:
    return sorted((node.table.cells["ada"].base for node in world.nodes if "ada" in node.table.cells), reverse=True)


equal_parts = pytest.mark.parametrize(
    ("quota", "nodes", "shares"), [(5, 4, [2, 1, 1, 1]), (12, 8, [2] * 4 + [1] * 4), (3, 4, [1, 1, 1, 0])]
)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
@equal_parts
def test_the_quota_is_dealt_among_the_nodes_that_are_asked(
    quota: int, nodes: int, shares: list[int], policy: Policy
) -> None:
    """All of it, and what equal parts leave over as well."""
    world = Away(quota, nodes, policy)

    world.goes_on(2 * WINDOW_S)

    assert shares == shares_of(world)
    assert quota == sum(entry.base for entry in world.entries())


def test_a_node_to_which_all_requests_come_has_all_of_it() -> None:
    """As behind a load balancer that sends a client always to the same process."""
    world = Away()
    ada = world.nodes[0]
    for _ in range(60):
        world.goes_on(1, every_s=2)
        world.tries(ada)

    assert 5 == ada.table.cells["ada"].base


def test_a_key_that_was_asked_for_once_has_no_share() -> None:
    """It would take a message to give it back."""
    world = Away()
    ada = world.nodes[0]
    ada.asks(ada.table, "ada", 1)

    world.exchanges(ada)

    assert 1 == len(list(ada.stops_asking(ada.table)))
    assert [0] == shares_of(world)


def test_a_node_that_hears_the_hub_uses_no_share() -> None:
    """All are admitted by the hub, one after the other."""
    world = Away()
    world.goes_on(2 * WINDOW_S)
    world.to_the_next_window()
    ada = world.nodes[0]

    assert ada.table.cells["ada"].base > 0
    assert not ada.table.allow("ada")


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
@pytest.mark.parametrize("nodes", [4, 8])
def test_while_the_hub_is_away_the_shares_open_in_the_third_window(nodes: int, policy: Policy) -> None:
    """They admit about as much as a static division, and never more than the quota together."""
    world = Away(12, nodes, policy)
    world.goes_on(2 * WINDOW_S)
    world.to_the_next_window()
    world.goes_on(20)
    world.cut = set(world.nodes)

    by_window = []
    for _ in range(9):
        world.to_the_next_window()
        by_window.append(world.goes_on(WINDOW_S - 2, every_s=3))

    assert 0 == sum(by_window[:1])
    assert sum(by_window[1:]) >= 0.5 * 12 * 8 * 0.6
    assert world.most <= 12 * policy.max_overshoot


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
@pytest.mark.parametrize("cut", [1, 2, 3])
def test_beside_nodes_that_are_cut_off_the_others_share_what_is_left(cut: int, policy: Policy) -> None:
    """The hub has set the shares of those aside, which it cannot tell from dead ones."""
    world = Away(12, 4, policy)
    world.goes_on(2 * WINDOW_S)
    world.to_the_next_window()
    world.cut = set(world.nodes[:cut])

    for _ in range(6):
        world.to_the_next_window()
        assert world.goes_on(WINDOW_S - 2, every_s=3) > 0

    assert world.most <= 12 * policy.max_overshoot


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
@pytest.mark.parametrize("stays_s", [1, 20, 61, 130])
def test_when_nodes_come_and_go_nothing_is_admitted_twice(stays_s: int, policy: Policy) -> None:
    """Each is away for four windows, one after the other, and both return in the middle of a window."""
    world = Away(12, 4, policy)
    world.goes_on(2 * WINDOW_S)
    for turn in range(6):
        world.cut = {world.nodes[turn % 4], world.nodes[(turn + 1) % 4]}
        world.goes_on(4 * WINDOW_S + 7 * turn, every_s=2)
        world.cut = set()
        world.goes_on(stays_s, every_s=1)

    assert world.most <= 12 * policy.max_overshoot


def test_a_key_that_is_reported_late_by_a_node_that_is_back_counts_as_opened_until_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A batch has room for some keys, and others may be asked for one before its turn comes."""
    world = Away(12, 2)
    ada, bob = world.nodes
    world.goes_on(2 * WINDOW_S)
    world.cut = {ada}
    world.goes_on(4 * WINDOW_S)
    world.to_the_next_window()
    for key in range(12):
        ada.table.hit(f"key {key}")
    world.goes_on(50, every_s=99)
    used = world.tries(ada, 12)
    assert used > 0
    world.cut = set()
    monkeypatch.setattr(syncer, "CELLS_MAX", 1)

    admitted, waits = 0, 0
    for _ in range(20):
        world.exchanges(ada)
        waits += entry_is_old(world)
        admitted += world.tries(bob, 2)

    assert waits > 0
    assert admitted <= 12 - used
    assert world.most <= 0


def excess_after_a_reset_heard_late(world: Away, cut_s: float, opens_s: float) -> float:
    """Returns by how much two nodes exceed a quota of 12. One is cut off, and the other resets the key after `cut_s`.

    The share of the first opens `opens_s` later. It hears of the reset when it is back, and has used its share.
    """
    ada, bob = world.nodes
    world.cut = {ada}
    world.goes_on(cut_s, every_s=99)
    bob.table.reset("ada")
    world.exchanges(bob)
    world.goes_on(opens_s, every_s=99)
    world.to_the_next_window()
    world.passes(1)
    assert 6 == world.tries(ada, 12)
    world.cut = set()
    for _ in range(3):
        world.exchanges(ada)
        world.passes(0.2)

    for _ in range(8):
        world.tries(bob, 3)
        world.passes(0.5)
    world.tries(ada, 12)
    return world.most


def test_use_of_an_opened_share_is_not_forgotten_for_an_earlier_reset() -> None:
    """A node hears of the reset when it is back, windows later."""
    world = Away(12, 2)
    world.goes_on(2 * WINDOW_S)

    assert excess_after_a_reset_heard_late(world, 2 * WINDOW_S, 3 * WINDOW_S) <= 0


def entry_is_old(world: Away) -> bool:
    """Whether the key's last report of the first node is of before the present minute."""
    now_us = world.clock.wall_ns() // 1000
    return any(now_us - entry.seen_us > 40_000_000 for entry in world.entries())


def test_a_node_whose_lease_is_over_uses_no_share() -> None:
    """The hub gives its share to others then, once what it may have admitted no longer counts."""
    world = Away(12, 2)
    ada, bob = world.nodes
    world.goes_on(2 * WINDOW_S)
    world.cut = {ada}
    world.goes_on(9 * WINDOW_S)
    world.goes_on(2 * WINDOW_S)

    assert 0 == world.tries(ada, 12)
    world.goes_on(2 * WINDOW_S)
    world.to_the_next_window()
    world.goes_on(WINDOW_S - 2, every_s=1)
    assert 10 <= world.admitted_by[bob] <= 12
    assert world.most <= 0


@pytest.mark.parametrize(
    ("window_s", "interval_s", "sealed"),
    [
        (SEALED_WINDOW_MAX_S, 0.1, True),
        (SEALED_WINDOW_MAX_S + 1, 0.1, False),
        (WINDOW_S, SEALED_AFTER_S / SEALED_INTERVALS, True),
        (WINDOW_S, SEALED_AFTER_S / SEALED_INTERVALS + 0.1, False),
    ],
)
def test_shares_are_of_short_windows_and_for_nodes_that_exchange_often(
    window_s: int, interval_s: float, sealed: bool
) -> None:
    """Leases end before a share of a longer window opens; and a node must not open one between two exchanges."""
    world = Away(window_s=window_s, nodes=0)
    world.nodes = [world.another_node(interval_ns=round(interval_s * SECOND_NS)) for _ in range(2)]
    for node in world.nodes:
        node.table.asks = True
    for _ in range(4):
        for node in world.nodes:
            world.tries(node)
            world.passes(interval_s)

    assert sealed == (sum(shares_of(world)) > 0)


class Ledger:
    """A hub that has heard two nodes, and their batches, which a test makes by hand, of a limit of 12 in a minute."""

    algorithm = SLIDING_WINDOW
    asked = ASKS

    def __init__(self) -> None:
        self.clock = ManualClock(MINUTE_BEGINS_S)
        self.hub = MemoryHub(clock=self.clock)
        self.heard: dict[str, int] = {}
        self.sequence = 0
        for node in ("ada.0", "bob.0", "ada.0", "bob.0"):
            self.hears(node)

    def hears(self, node: str, *cells: CellReport, answered: bool = True) -> list[CellAnswer]:
        """Merges a batch of `node`, which has the answer if it is `answered`. Returns the answers about its keys."""
        self.sequence += 1
        limit = LimitReport("limit", self.algorithm, 60_000_000, 12, 12, 0, 0, 0)
        generation = self.hub._shards[0].generation
        heard_us = self.heard.get(node, 0)
        answer = self.hub.merge(
            Batch(node, node, 0, self.sequence, generation, 100_000, 600_000_000, False, (limit,), cells, heard_us)
        )
        if answered:
            self.heard[node] = answer.hub_us
        return list(answer.cells)

    def asks(self, node: str, waiting: int = 0, current: int = 0, base: int = 0, allowance: int = 0) -> CellAnswer:
        epoch = self.clock.wall_ns() // (WINDOW_S * SECOND_NS)
        need = 1000 * max(waiting, 1)
        (answer,) = self.hears(
            node,
            CellReport(
                0, "ada", epoch, current, 0, allowance, base, 0, need, min(waiting, 1), self.asked + waiting, 0, 2, 0
            ),
        )
        return answer

    @property
    def sealed(self) -> int:
        """Returns the sum of all shares."""
        return sum(entry.base for cell in self.hub._shards[0].cells.values() for entry in cell.entries.values())

    def passes(self, seconds: float, *nodes: str) -> None:
        """Lets time pass, in which `nodes` exchange without anything to report."""
        for _ in range(round(seconds)):
            self.clock.advance(1)
            for node in nodes:
                self.hears(node)


def with_one_apart(windows: int) -> tuple[Ledger, int]:
    """A ledger in which one node was apart for some windows, and is back, its key still unreported; and its share."""
    ledger = Ledger()
    first = ledger.asks("ada.0", 2)
    second = ledger.asks("ada.0", current=2, base=first.base)
    ledger.passes(windows * WINDOW_S, "bob.0")
    ledger.hears("ada.0")
    return ledger, second.base


def test_a_share_is_set_aside_for_a_node_that_is_silent() -> None:
    """From the first window on that begins long enough after the last answer that it has certainly had."""
    ledger = Ledger()
    share = ledger.asks("ada.0", 2).base
    assert share == 12
    ledger.passes(WINDOW_S - 1, "bob.0")
    ledger.passes(2, "bob.0")

    assert 0 == ledger.asks("bob.0", 12).allowance


def test_a_report_gives_no_share_back_of_a_node_that_hears_no_answer() -> None:
    """It has opened nothing yet; it may in the next window, in which what others use now has not faded."""
    ledger = Ledger()
    share = ledger.asks("ada.0", 2).base
    assert share == 12
    ledger.passes(2 * WINDOW_S, "bob.0")
    epoch = ledger.clock.wall_ns() // (WINDOW_S * SECOND_NS)
    closed = CellReport(0, "ada", epoch, 0, 0, 0, share, 0, 1000, 0, ASKS, 0, 2, 0)
    ledger.hears("ada.0", closed, answered=False)

    assert 0 == ledger.asks("bob.0", 12).allowance


def test_a_share_is_set_aside_also_of_a_node_that_was_granted_more_than_it_last() -> None:
    """A grant is void in the next window, and what the node used fades; the share does not."""
    ledger = Ledger()
    share = ledger.asks("ada.0", 2).base
    ledger.passes(1, "ada.0", "bob.0")
    ledger.asks("bob.0", 1)
    ledger.passes(1, "ada.0", "bob.0")
    share = ledger.asks("ada.0", current=2, base=share).base
    assert share == 6
    assert 10 == ledger.asks("ada.0", 1, current=9, base=share).allowance
    ledger.passes(3 * WINDOW_S, "bob.0")

    assert 6 == ledger.asks("bob.0", 12).allowance


@pytest.mark.parametrize("more", [1, 2, 5])
def test_a_share_is_set_aside_until_a_node_that_is_back_has_reported_the_key(more: int) -> None:
    """Its first batches report other keys; the hub hears with the second one that the node hears it again."""
    ledger, share = with_one_apart(3)
    for _ in range(more):
        ledger.hears("ada.0")

    assert share == 12
    assert 0 == ledger.asks("bob.0", 12).allowance
    ledger.asks("ada.0", base=share)
    ledger.asks("ada.0", base=0)
    assert 12 == ledger.asks("bob.0", 12).allowance


def test_a_share_that_a_fast_clock_opened_early_is_set_aside_while_its_use_fades() -> None:
    """The node was back before the hub's window began that it had opened."""
    ledger, share = with_one_apart(3)
    ledger.hears("ada.0")
    ledger.passes(2 * WINDOW_S + 1, "ada.0", "bob.0")

    assert share == 12
    assert 0 == ledger.asks("bob.0", 12).allowance


def test_beside_shares_no_lasting_allowance_is_granted_of_a_loan() -> None:
    """It would outlast the loan; requests that ask are granted some of it, for a window."""
    ledger = Ledger()
    assert 12 == ledger.asks("ada.0", 1).base
    ledger.passes(1, "ada.0", "bob.0")
    shard = ledger.hub._shards[0]
    ((identity, cell),) = shard.cells.items()
    entry = next(iter(cell.entries.values()))
    rule = LimitRule.of(LimitReport("limit", "sliding-window", 60_000_000, 12, 12, 0, 0, 0))
    epoch = ledger.clock.wall_ns() // (WINDOW_S * SECOND_NS)
    plain = CellReport(0, "ada", epoch, 0, 0, 0, 0, 0, 9000, 1, 9, 9000, 9, 0)
    other = Entry(epoch, 0, need_milli=9000)

    grant(cell, "bob.0", other, plain, rule, 0, 6, nodes=1, small_allowances=False, may_be_silent=False)

    assert identity[-1] == "ada"
    assert entry.base + other.allowance <= 12


def test_three_windows_after_its_return_a_node_has_nothing_of_before_in_use() -> None:
    """Nor can it open a share, as it hears the hub."""
    ledger, _ = with_one_apart(3)
    ledger.passes(3 * WINDOW_S, "ada.0", "bob.0")

    assert 12 == ledger.asks("bob.0", 12).allowance


def test_shares_sum_to_the_capacity() -> None:
    """Another node is given one once the first has given back what equal parts take from it."""
    ledger = Ledger()
    assert 12 == ledger.asks("ada.0", 1).base
    ledger.passes(1, "ada.0", "bob.0")

    assert 0 == ledger.asks("bob.0", 1).base
    assert 12 == ledger.sealed
    ledger.passes(1, "ada.0", "bob.0")
    assert 6 == ledger.asks("ada.0", current=1, base=12).base
    ledger.passes(1, "ada.0", "bob.0")
    assert 0 == ledger.asks("bob.0", current=1).base
    ledger.asks("ada.0", current=1, base=6)
    ledger.passes(1, "ada.0", "bob.0")
    assert 6 == ledger.asks("bob.0", current=1).base


@pytest.mark.parametrize("first", ["allowance", "share"])
def test_shares_and_lasting_allowances_sum_to_the_capacity(first: str) -> None:
    """A node whose requests do not ask is granted an allowance, which outlasts its window as a share does."""
    ledger = Ledger()
    epoch = ledger.clock.wall_ns() // (WINDOW_S * SECOND_NS)
    plain = CellReport(0, "ada", epoch, 0, 0, 0, 0, 0, 9000, 1, 9, 9000, 9, 0)
    allowance = share = 0
    if first == "allowance":
        allowance = ledger.hears("bob.0", plain)[0].allowance
    for _ in range(3):
        ledger.passes(1, "ada.0", "bob.0")
        share = ledger.asks("ada.0", 1, base=share).base
    if first == "share":
        allowance = ledger.hears("bob.0", plain)[0].allowance

    assert 0 < allowance + share <= 12
