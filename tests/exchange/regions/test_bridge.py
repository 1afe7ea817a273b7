"""Goal: a bridge lends what the wide hub has granted, and reports as given back what its region has let go of.

Method: the real bridge, with a region's hub that says what the test has it say, and the real merge rule as wide hub.
"""

from __future__ import annotations

from itertools import count

import pytest

from reconverge.clock import SECOND_NS, ManualClock
from reconverge.exchange.regions.bridge import HOLD_MIN_S, Bridge
from reconverge.exchange.regions.loans import CLOCKS_APART_NS
from reconverge.hub.report import Batch, Lent, Status, Totals, Wish, Wishes
from reconverge_sync.memory import MemoryHub

START_S = 1_750_000_000.0
LOAN_S = 30
MOVABLE = 60
WISH = Wish("login:ada", "login", 100, 100, 10_000_000, 20, 20, 50_000, 0, 0, 20_000_000, 0)
"""20 of 100 are the region's own, and it would use 50 more."""
NEED = 50


_numbers = count()


class BridgedRegion:
    """One region: its bridge, and a hub that holds what the test says."""

    def __init__(self, clock: ManualClock, name: str, wide: MemoryHub) -> None:
        self.clock = clock
        self.wide = wide
        self.bridge = Bridge(
            name, f"b{next(_numbers)}", movable_ppm=MOVABLE * 10_000, interval_ns=SECOND_NS, loan_ns=LOAN_S * SECOND_NS
        )
        self.wishes: tuple[Wish, ...] = (WISH,)
        self.generation = "i1"
        self.held = 0
        """The allowances of nodes there, however little is lent."""
        self.lent = 0
        self.until_us = 0
        self.batches: list[Batch] = []
        self.answers = True
        """The region's hub does."""

    def listens(self) -> None:
        """Hear what its region needs."""
        now_ns, hub_us = self.clock.monotonic_ns(), self.clock.wall_ns() // 1000
        wishes = Wishes(hub_us, self.generation, 1_000_000, self.wishes)
        self.bridge.hear_wishes(0, wishes, sent_ns=now_ns, now_ns=now_ns)

    def tells(self, *, heard: bool = True) -> None:
        """Tell the wide hub, and hear its answer."""
        now_ns = self.clock.monotonic_ns()
        for batch in self.bridge.batches(now_ns):
            self.batches.append(batch)
            if heard:
                self.bridge.merged(batch, self.wide.merge(batch), sent_ns=now_ns)
            else:
                self.bridge.failed(batch)

    def lends(self) -> None:
        """Tell the region's hub, and hear its answer."""
        now_ns, hub_us = self.clock.monotonic_ns(), self.clock.wall_ns() // 1000
        for lending in self.bridge.lendings(0, now_ns):
            for loan in lending.loans:
                self.lent, self.until_us = loan.amount, loan.until_us
            if self.answers:
                lent = Lent(hub_us, self.generation, Status.MERGED, (max(self.lent, self.held),))
                self.bridge.hear_lent(0, lending, lent, sent_ns=now_ns, now_ns=now_ns)

    def goes_round(self, rounds: int = 1, *, heard: bool = True) -> None:
        """Make so many rounds, a second each."""
        for _ in range(rounds):
            self.listens()
            self.tells(heard=heard)
            self.lends()
            self.clock.advance(1)

    @property
    def told(self) -> int:
        """The allowance of which it has told the wide hub last."""
        return next(batch.cells[0].allowance for batch in reversed(self.batches) if batch.cells)


@pytest.fixture
def clock() -> ManualClock:
    """Everybody's."""
    return ManualClock(START_S)


@pytest.fixture
def wide(clock: ManualClock) -> MemoryHub:
    """The hub of all regions."""
    return MemoryHub(clock=clock)


@pytest.fixture
def region(clock: ManualClock, wide: MemoryHub) -> BridgedRegion:
    """A region that needs more than it has."""
    return BridgedRegion(clock, "eu", wide)


def test_what_the_wide_hub_grants_is_lent(region: BridgedRegion) -> None:
    """All that is needed and some of what nobody else needs, but no more than belongs to no region."""
    region.goes_round(3)

    assert NEED <= region.lent <= MOVABLE


def test_nothing_is_lent_before_it_is_granted(region: BridgedRegion) -> None:
    """However much the region needs."""
    region.goes_round(3, heard=False)

    assert 0 == region.lent


def test_all_regions_together_borrow_what_there_is(clock: ManualClock, wide: MemoryHub) -> None:
    """In proportion to what they need, whoever came first."""
    regions = [BridgedRegion(clock, name, wide) for name in ("eu", "us", "asia")]
    regions[0].goes_round(3)
    for _ in range(60):
        for region in regions:
            region.goes_round()

    assert sum(region.lent for region in regions) <= MOVABLE
    assert min(region.lent for region in regions) >= MOVABLE // 3 - 3


def test_a_lower_allowance_is_told_when_the_region_has_let_go(region: BridgedRegion) -> None:
    """Not when it was asked to, nor when its hub does not answer."""
    region.goes_round(2)
    region.held, region.wishes = 50, ()
    region.goes_round(5)

    assert 0 == region.lent
    assert 50 <= region.told

    region.answers = False
    region.held = 0
    region.goes_round(5)

    assert 50 <= region.told

    region.answers = True
    region.goes_round(5)

    assert 0 == region.told


def test_what_may_have_been_given_back_is_not_lent_again(region: BridgedRegion) -> None:
    """A lower allowance was told, and no answer came; the wide hub may have granted the rest to others."""
    region.goes_round(3)
    before, region.wishes = region.lent, (WISH._replace(needs_milli=10_000),)
    region.goes_round(5, heard=False)
    told, region.wishes = region.told, (WISH,)
    region.goes_round(2, heard=False)

    assert told < before
    assert region.lent <= told


def test_what_was_given_back_is_kept_for_as_long_as_clocks_may_differ(region: BridgedRegion) -> None:
    """In another region it may still be the window in which it was used."""
    region.goes_round(2)
    lent, region.wishes = region.lent, ()
    region.listens()
    region.tells()
    region.lends()
    region.clock.advance_ns(CLOCKS_APART_NS - 1)
    region.tells()

    assert 0 == region.lent
    assert lent <= region.told


def test_a_loan_ends_a_while_after_the_wide_hub_was_heard(region: BridgedRegion, clock: ManualClock) -> None:
    """Counted from the moment at which that batch was sent; as long as it is heard, the end moves on."""
    region.goes_round(40)
    heard_us = clock.wall_ns() // 1000 - 1_000_000
    region.goes_round(10, heard=False)

    assert region.lent > 0
    assert region.until_us <= heard_us + LOAN_S * 1_000_000

    region.goes_round(LOAN_S, heard=False)

    assert 0 == region.lent


def test_the_wide_hub_waits_for_longer_than_a_loan_can_be_in_use(region: BridgedRegion) -> None:
    """The loan, and then the time for which what was used of it may count, leases of nodes included."""
    region.goes_round()
    least_s = LOAN_S + 20 + 3

    assert all(batch.lease_us > least_s * 1_000_000 for batch in region.batches)


def test_who_was_given_up_by_the_wide_hub_begins_anew(region: BridgedRegion, clock: ManualClock) -> None:
    """With nothing, under a new name."""
    region.goes_round(3)
    before = region.batches[-1].node
    clock.advance(LOAN_S + HOLD_MIN_S + 1)
    region.goes_round(1)

    assert 0 == region.lent

    region.goes_round(2)

    assert before != region.batches[-1].node
    assert region.lent > 0


def test_a_region_that_lost_its_data_may_still_hold_all_of_it(region: BridgedRegion) -> None:
    """Its hub says that nothing is held, but it does not know; so nothing is given back for long."""
    region.goes_round(3)
    lent, region.wishes = region.lent, ()
    region.generation = "i2"
    region.goes_round(20)

    assert lent <= region.told


def test_a_bridge_that_ends_gives_back_what_is_free(region: BridgedRegion) -> None:
    """And says so only when the wide hub has heard of it."""
    region.goes_round(3)
    region.bridge.leave()
    region.held = 10
    region.goes_round(5)

    assert not region.bridge.free
    assert 10 == region.told

    region.held = 0
    region.goes_round(5)

    assert region.bridge.free


def test_the_wide_totals_are_those_of_all_regions(clock: ManualClock, wide: MemoryHub) -> None:
    """However often they are told, and whoever tells them."""
    for name, charged in (("eu", 70), ("us", 30), ("eu", 75)):
        region = BridgedRegion(clock, name, wide)
        region.bridge.hear_totals({"login": Totals(charged, 5)})
        region.goes_round(2)

    assert {"login": Totals(105, 10)} == wide.sums()


def test_what_counts_for_long_is_lent_under_a_name_of_its_own(region: BridgedRegion) -> None:
    """So that a name that is lost keeps what counts for minutes no longer than that."""
    region.wishes = (WISH, WISH._replace(cell="daily:ada", limit="daily", fades_us=400_000_000_000))
    region.goes_round()
    leases = sorted(batch.lease_us for batch in region.batches if batch.cells)

    assert 2 == len(leases)
    assert leases[0] < 200_000_000
    assert leases[1] > 400_000_000_000
