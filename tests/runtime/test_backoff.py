"""Goal: after failures nodes pause for longer each time, and never for longer than the hub reckons with."""

from __future__ import annotations

import pytest

from reconverge.clock import MILLISECOND_NS, SECOND_NS
from reconverge.runtime.backoff import BACKOFF_CAP_NS, DOUBLINGS_MAX, backoff_ns

INTERVAL_NS = 100 * MILLISECOND_NS


def test_each_failure_doubles_the_pause_up_to_the_cap() -> None:
    """The first pause is the interval; the last one below the cap is doubled to the cap, and not beyond it."""
    pauses_ns = [backoff_ns(INTERVAL_NS, times) for times in range(1, 7)]

    assert [100, 200, 400, 800, 1000, 1000] == [pause_ns // MILLISECOND_NS for pause_ns in pauses_ns]


@pytest.mark.parametrize("interval_ns", [BACKOFF_CAP_NS, BACKOFF_CAP_NS + 1, 60 * SECOND_NS])
def test_an_interval_that_is_no_shorter_than_the_cap_is_the_pause(interval_ns: int) -> None:
    """Nodes that exchange seldom do not pause for longer than they do anyway, however often they fail."""
    assert {interval_ns} == {backoff_ns(interval_ns, times) for times in (1, 2, 10, 10**6)}


def test_an_outage_of_any_length_costs_no_more_than_its_beginning() -> None:
    """The number that is shifted stays small: a million failures ask for the pause of the first thirty."""
    assert backoff_ns(1, DOUBLINGS_MAX + 1) == backoff_ns(1, 10**6)
    assert BACKOFF_CAP_NS == backoff_ns(1, 10**6)
