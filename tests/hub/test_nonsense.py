"""Goal: whatever a hub says, a node believes nothing that cannot be true, and exchanges again once it hears the truth.

Method: the real syncer and the real driver under a clock that the test moves, with a hub in memory that merges every
batch and says something else: each kind of nonsense once, and for a while; and random nonsense.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconverge.clock import SECOND_NS
from reconverge.errors import HubUnavailable
from reconverge.exchange.driver import ExchangeDriver
from reconverge.hub.checking import answers
from reconverge.hub.report import WHOLE_MAX, Answer, AnswerRows, CellAnswer, Status
from reconverge.kernel import COMPILED, first_odd_cell
from reconverge.limit import Limit
from reconverge.policies import BALANCED, NAIVE, STRICT
from reconverge.runtime.backoff import BACKOFF_CAP_NS
from reconverge.simulation.explore.node import INTERVAL_NS, LEASE_NS
from tests.support.effort import tried
from tests.support.kernel.talker import Talkers
from tests.support.nonsense import LIES, NONSENSE, Nonsense, OddHub, _rows

LIMITS = {
    "fixed": Limit(100, 60, algorithm="fixed-window"),
    "first hit": Limit(100, 60, algorithm="fixed-window", align="first-hit"),
    "sliding": Limit(100, 60, algorithm="sliding-window"),
    "bucket": Limit(100, 60, algorithm="token-bucket"),
    "log": Limit(100, 60, algorithm="sliding-log"),
    "leaky": Limit(100, 60, algorithm="leaky-bucket"),
}
WHILE = 4
"""So many answers in a row are nonsense for a while."""
RECOVERY_NS = BACKOFF_CAP_NS + INTERVAL_NS
"""Within so long after the last nonsense a node has exchanged again: its back-off, and an interval."""


class Driven:
    """A node that is driven as in an application, by a clock that stands still unless it is moved."""

    def __init__(self, limit: Limit = LIMITS["fixed"], policy: Any = STRICT) -> None:
        self.world = Talkers(limit, policy)
        self.clock = self.world.clock
        self.hub = OddHub(clock=self.clock)
        (self.node,) = self.world.nodes
        self.exchanges = ExchangeDriver(
            [self.node.syncer], hub=self.hub, clock=self.clock, timeout_s=5.0, hub_name="odd"
        )
        self.shard = self.node.kernel.shards[0]
        self.uses()
        self.goes_on(1.0)
        self.uses()
        self.goes_on(1.0)

    def uses(self) -> None:
        """Something is asked of the key, so that there is something to say."""
        self.node.admitted_of(1)

    def goes_on(self, seconds: float) -> None:
        """Let time pass, and exchange whenever it is due."""
        asyncio.run(self._go_on(self.clock.monotonic_ns() + round(seconds * SECOND_NS)))

    async def _go_on(self, until_ns: int) -> None:
        while (due_ns := self.clock.monotonic_ns() + round(self.exchanges.due_in_s() * SECOND_NS)) <= until_ns:
            self.clock.advance_ns(due_ns - self.clock.monotonic_ns())
            await self.exchanges.carry_out()
            self.clock.advance_ns(1)
        self.clock.advance_ns(max(0, until_ns - self.clock.monotonic_ns()))

    def hears(self, odd: Nonsense, times: int) -> None:
        """The hub says that so many times, and then the truth."""
        self.hub.odd = odd
        until = self.hub.said + times
        for _ in range(1000):
            self.uses()
            if self.hub.said >= until:
                break
            self.goes_on(0.05)
        assert self.hub.said >= until, "the node has stopped to ask"
        self.hub.odd = None

    @property
    def state(self) -> tuple[object, ...]:
        """Returns the state that an answer can change."""
        cell = self.node.table.cells["ada"]
        return (
            *(self.shard.offset_ns, self.shard.lag_ns, self.shard.lease_until_ns, self.shard.acked_ns),
            *(cell.allowance, cell.base, cell.overdraft, cell.heard_ns, cell.epoch, cell.fleet_used, cell.reset_us),
            *(self.node.syncer.node, self.node.syncer.stats(0).exchanges),
        )

    @property
    def failures(self) -> dict[str, int]:
        """Exchanges that failed, by class."""
        return self.node.syncer.stats(0).failures

    @property
    def exchanged(self) -> int:
        """How many exchanges were answered."""
        return self.node.syncer.stats(0).exchanges


@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense_is_a_failed_exchange_that_changes_nothing(name: str) -> None:
    """It is counted in the class "protocol"; the clock, the allowances, the lease and the name are what they were."""
    driven = Driven()
    driven.uses()
    before = driven.state

    driven.hub.odd = NONSENSE[name]
    asyncio.run(driven.exchanges.carry_out())
    while driven.hub.said == 0:
        driven.clock.advance_ns(round(driven.exchanges.due_in_s() * SECOND_NS))
        before = driven.state
        asyncio.run(driven.exchanges.carry_out())

    assert {"protocol": 1} == driven.failures
    assert before == driven.state
    assert 0 == driven.exchanges.bugs


@pytest.mark.parametrize("times", [1, WHILE])
@pytest.mark.parametrize("name", NONSENSE)
def test_a_node_exchanges_again_once_the_nonsense_ends(name: str, times: int) -> None:
    """Within its back-off and an interval; what it has used meanwhile is told, and its lease goes on."""
    driven = Driven()

    driven.hears(NONSENSE[name], times)
    exchanged = driven.exchanged
    driven.goes_on(RECOVERY_NS / SECOND_NS)

    assert exchanged < driven.exchanged
    assert {"protocol": driven.hub.said} == driven.failures
    assert 0 == driven.exchanges.bugs
    assert driven.node.in_lease
    driven.uses()
    driven.goes_on(1.0)
    charged = driven.node.table.tallies[0].charged
    assert {"limit": (charged, 0)} == asyncio.run(driven.hub.totals())


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("times", [1, WHILE])
@pytest.mark.parametrize("name", LIES)
def test_a_node_finds_back_from_what_could_be_true(name: str, times: int, limit: str) -> None:
    """It has to believe that; nothing breaks, and once the truth is told it is ready as before."""
    driven = Driven(LIMITS[limit], BALANCED)

    driven.hears(LIES[name], times)
    exchanged = driven.exchanged
    driven.goes_on((RECOVERY_NS + LEASE_NS) / SECOND_NS)
    driven.uses()
    driven.goes_on(1.0)

    assert exchanged < driven.exchanged
    assert 0 == driven.exchanges.bugs
    assert not driven.node.syncer.failing
    assert driven.node.in_lease
    assert abs(driven.shard.offset_ns - (driven.clock.wall_ns() - driven.clock.monotonic_ns())) < SECOND_NS


def test_nonsense_is_said_once_for_an_outage(caplog: pytest.LogCaptureFixture) -> None:
    """One warning names the class and the value; another says that the hub answers again."""
    driven = Driven()

    with caplog.at_level(logging.WARNING, "reconverge"):
        driven.hears(NONSENSE["hub_us 2**62"], WHILE)
        driven.goes_on(RECOVERY_NS / SECOND_NS)

    said, over = (record.getMessage() for record in caplog.records)
    assert "protocol: the hub's clock cannot be 4611686018427387904" in said
    assert "the hub odd answers again" in over


@pytest.mark.parametrize("name", ["given up", "another hub each time", "old news"])
def test_a_hub_that_never_grants_a_rest_does_not_set_the_pace(name: str) -> None:
    """Each of these calls for another exchange at once; there are few more than one in each interval all the same."""
    driven = Driven()
    numbers = iter(range(10**9))
    driven.hub.odd = {
        **LIES,
        "another hub each time": lambda answer: answer._replace(generation=f"number {next(numbers)}"),
    }[name]
    driven.hub.always = True
    told = len(driven.hub.told)
    seconds = 20

    for _ in range(seconds):
        driven.uses()
        driven.goes_on(1.0)

    assert len(driven.hub.told) - told <= 2 * seconds * SECOND_NS / INTERVAL_NS
    driven.hub.odd = None
    driven.goes_on(RECOVERY_NS / SECOND_NS)
    driven.uses()
    driven.goes_on(1.0)
    assert driven.node.in_lease
    assert not driven.node.syncer.failing


CELL_ANSWERS = st.lists(
    st.sampled_from([0, 1, 50, 99, 100, 101, 1000])
    | st.sampled_from([-1, WHOLE_MAX, WHOLE_MAX + 1, -WHOLE_MAX - 1, 2**62, -(2**63), 2**63 - 1]),
    min_size=16,
    max_size=16,
)
FIELDS = st.none() | st.booleans() | st.floats() | st.text(max_size=2) | st.integers() | st.binary(max_size=2)
BOUNDS = answers.CellBounds(100, 100, 50)


@given(cells=st.lists(CELL_ANSWERS, max_size=5), wide=st.booleans())
@settings(max_examples=tried(80, long=500))
def test_both_kernels_refuse_the_same_rows(cells: list[list[int]], wide: bool) -> None:
    """The compiled kernel finds the same odd cell in packed rows, and in tuples, as its definition does."""
    told = tuple(map(CellAnswer._make, cells))
    reports: Any = tuple((0, "ada") for _ in told)
    expected = answers.first_odd_cell(reports, told, (BOUNDS,))

    assert expected == first_odd_cell(reports, told, (BOUNDS,))
    if wide or all(-(2**31) <= number < 2**31 for cell in cells for number in cell[1:15]):
        rows = AnswerRows(b"".join(_rows(cell, wide=wide).raw for cell in told), wide=wide)
        assert expected == first_odd_cell(reports, rows, (BOUNDS,))


@given(cells=st.lists(st.lists(FIELDS, max_size=17) | FIELDS, max_size=4))
def test_both_kernels_refuse_the_same_values(cells: list[Any]) -> None:
    """Both find the same cell answer odd, made of any values, and neither raises."""
    told: Any = tuple(tuple(cell) if isinstance(cell, list) else cell for cell in cells)
    reports: Any = tuple((0, "ada") for _ in told)

    expected = answers.first_odd_cell(reports, told, (BOUNDS,))
    assert expected == first_odd_cell(reports, told, (BOUNDS,))


def test_the_twin_under_test_is_the_one_that_is_in_use() -> None:
    """Where the compiled kernel is in use its own check is, and the definition otherwise."""
    assert COMPILED == (first_odd_cell is not answers.first_odd_cell)


SAID = st.fixed_dictionaries(
    {},
    optional={
        "hub_us": st.integers() | FIELDS,
        "generation": st.text(max_size=4) | FIELDS,
        "status": st.sampled_from(Status) | FIELDS,
    },
)


@given(
    said=st.lists(st.tuples(SAID, CELL_ANSWERS | st.lists(FIELDS, min_size=16, max_size=16)), min_size=1, max_size=6)
)
@settings(deadline=None)
def test_a_node_survives_whatever_is_said(said: list[tuple[dict[str, Any], list[Any]]]) -> None:
    """Random values in every place, some of which could be true: there is no bug, and the node finds back."""
    driven = Driven(LIMITS["sliding"], NAIVE)
    for header, cell in said:
        driven.hears(partial(_with, header, CellAnswer._make(cell)), 1)

    driven.goes_on((RECOVERY_NS + LEASE_NS) / SECOND_NS)
    driven.uses()
    driven.goes_on(1.0)

    assert 0 == driven.exchanges.bugs
    assert driven.node.in_lease


def test_what_is_shown_of_nonsense_is_short() -> None:
    """However large a value is, the error names it in few words."""
    driven = Driven()
    driven.uses()
    driven.clock.advance_ns(INTERVAL_NS)
    batch = driven.node.says()
    good = asyncio.run(driven.hub.exchange(batch))

    for odd in NONSENSE.values():
        with pytest.raises(HubUnavailable) as problem:
            answers.check_answer(batch, _said(odd, good))
        assert "protocol" == problem.value.kind
        assert len(str(problem.value)) < 500


def _said(odd: Nonsense, good: Answer) -> Any:
    return odd(good)


def _with(header: dict[str, Any], cell: CellAnswer, answer: Answer) -> Answer:
    return answer._replace(**header, cells=(cell,) * len(answer.cells))


@pytest.mark.parametrize("always", [False, True])
@pytest.mark.parametrize("name", ["given up", "old news", "another hub", "hub_us None"])
def test_last_words_come_to_an_end_whatever_is_answered(name: str, always: bool) -> None:
    """A node that leaves says its last words a few times at most, to a hub that never takes them for what they are."""
    driven = Driven()
    driven.uses()
    driven.hub.odd, driven.hub.always = {**NONSENSE, **LIES}[name], always
    told = len(driven.hub.told)

    asyncio.run(asyncio.wait_for(driven.exchanges.leave(), 60.0))

    assert len(driven.hub.told) - told <= 5
