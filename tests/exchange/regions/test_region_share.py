"""Goal: the parts of all regions, and what is movable, never sum to more than a limit. Method: what nodes report."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reconverge.clock import ManualClock
from reconverge.exchange.answer_stats import AnswerStats
from reconverge.hub.report import Loan
from reconverge.limit import Limit
from reconverge.policies import STRICT
from reconverge.settings import MILLION, checked_share
from reconverge.simulation.explore.node import SmallNode
from reconverge_sync.memory import MemoryHub


def own_part(limit: Limit, share: float) -> int:
    """Returns the own part of a region with that share, as its node reports it."""
    node = SmallNode(ManualClock(0))
    node.kernel.region_ppm = checked_share(share)
    node.limit(limit, STRICT).decide("ada", 1, 0)
    batch = node.sends()
    assert batch is not None
    return batch.limits[0].capacity - batch.limits[0].apart


def test_without_regions_all_of_it_is_here() -> None:
    """The default."""
    assert 100 == own_part(Limit(100, 60.0), 1.0)


def test_a_part_is_rounded_down() -> None:
    """Of a quota, of a burst, and of what is paced in thousandths."""
    assert 3 == own_part(Limit(10, 60.0), 0.33)
    assert 6 == own_part(Limit(10, 60.0, algorithm="token-bucket", burst=20), 0.33)
    assert 3300 == own_part(Limit(10, 60.0, algorithm="leaky-bucket"), 0.33)


@given(quota=st.integers(1, 10**9), shares=st.lists(st.integers(1, 1000), min_size=1, max_size=6))
def test_all_parts_together_never_exceed_the_limit(quota: int, shares: list[int]) -> None:
    """However the shares are chosen, if they and what is movable sum to 1."""
    of_all = sum(shares) + 7
    ppms = [share * MILLION // of_all for share in shares]
    movable = quota * (MILLION - sum(ppms)) // MILLION
    limit = Limit(quota, 60.0, algorithm="sliding-window")

    assert sum(own_part(limit, ppm / MILLION) for ppm in ppms if ppm) + movable <= quota


def test_what_was_lent_before_is_no_breach() -> None:
    """When a loan is over, what was used of it still counts; the limit was kept all the same."""
    clock = ManualClock(1_750_000_000)
    hub, node, watch = MemoryHub(clock=clock), SmallNode(clock), AnswerStats()
    node.kernel.region_ppm = checked_share(0.2)
    login = node.limit(Limit(100, 60.0, algorithm="sliding-window"), STRICT)

    def ask(times: int) -> int:
        admitted = sum(login.decide("ada", 1, clock.monotonic_ns()).allowed for _ in range(times))
        for _ in range(3):
            clock.advance_ns(node.kernel.interval_ns)
            batch = node.sends()
            node.reaches(hub)
            answer = None if node.flight is None else node.flight.answer
            node.hears()
            if batch is not None and answer is not None:
                watch.answered(batch, answer, seconds=0.0)
        return admitted

    admitted = sum(ask(100) for _ in range(8))
    (wish,) = hub.tell_wishes(0).wishes
    hub.take_loans(0, "b1", 1, [Loan(wish.cell, 50, clock.wall_ns() // 1000 + 5_000_000)])
    admitted += sum(ask(100) for _ in range(8))
    clock.advance(6)
    for _ in range(8):
        ask(100)

    assert 70 == admitted
    assert 0 == sum(watch.over.values())
