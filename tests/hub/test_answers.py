"""Goal: what a region's hub and a settings store say is checked as an answer is, before any of it is believed.

Method: good values with another value in each place, and a real bridge between hubs of which one talks nonsense.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from reconverge.clock import SECOND_NS, ManualClock
from reconverge.errors import HubUnavailable
from reconverge.exchange.regions.bridge import Bridge
from reconverge.exchange.regions.driver import BridgeDriver
from reconverge.hub.checking.answers import check_lent, check_posted, check_totals, check_wishes
from reconverge.hub.report import Answer, Batch, Lent, Loan, Status, Totals, Wish, Wishes
from reconverge_sync.memory import MemoryHub
from tests.support.kernel.talker import MINUTE_BEGINS_S
from tests.support.nonsense import ODD_VALUES

WISH: Any = Wish(
    "login:ada", "login", 100, 100, 60_000_000, 20, 30, 5_000, 1_000, 0, 240_000_000, 1_750_000_000_000_000
)
WISHES: Any = Wishes(1_750_000_000_000_000, "data", 30_000_000, (WISH,))
LOANS = (Loan("login:ada", 5, 1_750_000_030_000_000),)
LENT: Any = Lent(1_750_000_000_000_000, "data", Status.MERGED, (5,))
ODD_TEXTS: dict[str, Any] = {"None": None, "7": 7, "bytes": b"a", "half a character": "\ud800", "too long": "x" * 2**18}


def odd_wishes() -> list[Any]:
    """Wishes with one value that cannot be."""
    numbers = [name for name in Wish._fields if name not in ("cell", "limit")]
    wishes: list[Any] = [
        *(WISH._replace(**{name: value}) for name in numbers for value in (*ODD_VALUES.values(), -1, 2**53 + 1)),
        *(WISH._replace(**{name: value}) for name in ("cell", "limit") for value in ODD_TEXTS.values()),
        *(WISH._replace(**{name: 0}) for name in ("capacity", "quota", "window_us")),
        *(None, 7, WISH[:-1], list(WISH)),
    ]
    return [
        *(WISHES._replace(wishes=(WISH, wish)) for wish in wishes),
        *(WISHES._replace(wishes=value) for value in (None, 7, [WISH], "x", WISH)),
        *(WISHES._replace(hub_us=value) for value in (*ODD_VALUES.values(), -1, 2**53)),
        *(WISHES._replace(lease_us=value) for value in (*ODD_VALUES.values(), -1)),
        *(WISHES._replace(generation=value) for value in ODD_TEXTS.values()),
        *(None, 7, (), tuple(WISHES)),
    ]


def odd_lent() -> list[Any]:
    """Returns replies that cannot be those to one loan."""
    return [
        *(LENT._replace(held=(value,)) for value in (*ODD_VALUES.values(), -2, 2**53 + 1)),
        *(LENT._replace(held=value) for value in (None, 7, [5], (), (5, 5))),
        *(LENT._replace(status=value) for value in (None, 0, 7, "MERGED", True)),
        *(LENT._replace(hub_us=value) for value in (*ODD_VALUES.values(), -1, 2**53)),
        *(LENT._replace(generation=value) for value in ODD_TEXTS.values()),
        *(None, 7, (), tuple(LENT)),
    ]


def odd_totals() -> list[Any]:
    """Returns values that cannot be totals."""
    odd: list[Any] = [None, 1.5, "1", True, -1]
    pairs = [Totals(1, value) for value in odd]
    return [*({"login": pair} for pair in pairs), {"login": None}, {"login": (1, 2, 3)}, {7: Totals(1, 0)}, None, 7, ()]


def test_what_is_good_passes() -> None:
    """A check that refuses everything would pass all other tests."""
    check_wishes(WISHES)
    check_lent(LOANS, LENT)
    check_lent(LOANS, LENT._replace(status=Status.STALE, held=()))
    check_totals({"login": Totals(2**60, 3)})
    check_posted(b"")
    check_posted(None)


@pytest.mark.parametrize("wishes", odd_wishes())
def test_wishes_that_cannot_be_are_refused(wishes: Any) -> None:
    """In the class "protocol", whatever value it is in whatever place."""
    with pytest.raises(HubUnavailable, match=r"^protocol: "):
        check_wishes(wishes)


@pytest.mark.parametrize("lent", odd_lent())
def test_what_cannot_become_of_a_loan_is_refused(lent: Any) -> None:
    """Likewise."""
    with pytest.raises(HubUnavailable, match=r"^protocol: "):
        check_lent(LOANS, lent)


@pytest.mark.parametrize("totals", odd_totals())
def test_totals_that_cannot_be_are_refused(totals: Any) -> None:
    """Likewise."""
    with pytest.raises(HubUnavailable, match=r"^protocol: "):
        check_totals(totals)


@pytest.mark.parametrize("payload", ["text", 7, [], bytearray(b"x"), True])
def test_what_cannot_have_been_posted_is_refused(payload: Any) -> None:
    """A settings store keeps bytes."""
    with pytest.raises(HubUnavailable, match=r"^protocol: "):
        check_posted(payload)


class _Home:
    """A region's hub that says what it is told to."""

    shards = 1

    def __init__(self) -> None:
        self.wishes_said: Any = WISHES
        self.lent: list[Sequence[Loan]] = []
        self.lent_said: Any = LENT

    async def wishes(self, shard: int) -> Wishes:
        said: Wishes = self.wishes_said
        return said

    async def lend(self, shard: int, lender: str, sequence: int, loans: Sequence[Loan]) -> Lent:
        self.lent.append(loans)
        said: Lent = self.lent_said
        return said

    async def close(self) -> None:
        """Does nothing."""


class _Wide(MemoryHub):
    """The hub of all regions, which may say something else."""

    odd: Any = None

    async def exchange(self, batch: Batch) -> Answer:
        answer = await super().exchange(batch)
        return answer if self.odd is None else self.odd


@pytest.mark.parametrize("side", ["home", "wide"])
def test_a_bridge_goes_on_after_nonsense(side: str, caplog: pytest.LogCaptureFixture) -> None:
    """It lends nothing while one of its hubs talks nonsense, says so once, and lends once both make sense again."""
    clock, home = ManualClock(MINUTE_BEGINS_S), _Home()
    wide = _Wide(clock=clock)
    bridge = Bridge("eu", "bridge", movable_ppm=600_000, interval_ns=SECOND_NS // 10, loan_ns=8 * SECOND_NS)
    bridging = BridgeDriver(
        bridge, home, wide, home_name="home", wide_name="wide", clock=clock, interval_s=0.1, timeout_s=5.0
    )
    if side == "home":
        home.wishes_said = WISHES._replace(hub_us=2**62)
    else:
        wide.odd = None if side == "home" else 7

    for _ in range(5):
        asyncio.run(bridging.go_round())
        clock.advance_ns(SECOND_NS)
    nothing = [loan for loans in home.lent for loan in loans if loan.amount > 0]
    home.wishes_said, wide.odd = WISHES, None
    for _ in range(5):
        asyncio.run(bridging.go_round())
        clock.advance_ns(SECOND_NS)

    assert [] == nothing
    assert any(loan.amount > 0 for loans in home.lent for loan in loans)
    said = [record.getMessage() for record in caplog.records]
    assert [f"the hub {side} is unavailable", f"the hub {side} answers again"] == [
        text.removeprefix("reconverge: ").split(" (")[0] for text in said
    ]
