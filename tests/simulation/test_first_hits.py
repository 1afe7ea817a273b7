"""Goal: one who sees everything knows which window of the fleet a charge belongs to. Method: small cases, by hand."""

from __future__ import annotations

from reconverge.clock import SECOND_NS
from reconverge.limit import Limit
from reconverge.simulation.judging.first_hits import OpenedWindow, fleet_windows
from reconverge.simulation.truth import DecidedRequest, TrueCharge, excess_by_place, first_asked, number_of, placed

LIMIT = Limit(10, 60, algorithm="fixed-window", align="first-hit")


def windows(opened: list[tuple[int, int]], of_hub: set[int] | None = None) -> list[int]:
    """When the fleet's windows began of which these are parts; each is a node and a moment. A window lasts 60."""
    found = fleet_windows([OpenedWindow(*each) for each in opened], 60, of_hub=of_hub)
    return [found[OpenedWindow(*each)] for each in opened]


def test_the_hubs_window_is_everybodys_who_was_in_it() -> None:
    """Under its own name, or because it was open when theirs began."""
    assert [100, 100, 100, 160] == windows([(1, 100), (2, 100), (3, 150), (3, 160)], {100, 160})


def test_a_window_during_which_the_hub_has_opened_one_is_a_part_of_that() -> None:
    """Its node has taken it along."""
    assert [100, 100] == windows([(1, 95), (2, 100)], {100})


def test_a_node_that_has_two_windows_of_its_own_was_in_the_hubs_once() -> None:
    """The first of them came before, unless the node has taken both along."""
    assert [95, 100] == windows([(1, 95), (1, 156)], {100})
    assert [100, 100, 100] == windows([(1, 95), (1, 156), (1, 100)], {100})


def test_windows_that_the_hub_never_knew_count_together_if_they_overlap() -> None:
    """From the first of them on."""
    assert [10, 10, 70, 130] == windows([(1, 10), (2, 69), (3, 70), (2, 130)], set())


def test_without_the_hubs_word_its_windows_are_those_that_nodes_have_shared() -> None:
    """Nobody else could have named one to two of them."""
    assert [100, 100, 100, 200] == windows([(1, 100), (2, 100), (3, 130), (1, 200)])


def decided(second: int, node: int, epoch_s: int, *, allowed: bool = True) -> DecidedRequest:
    """A request of one unit, and the window that its node put it in."""
    return DecidedRequest(second * SECOND_NS, 0, "ada", epoch_s * 10**6, 1, 0, node, allowed, True)


def test_every_window_of_the_fleet_has_a_number_of_its_own() -> None:
    """Refused requests are in the one that was open then, if any was."""
    requests = [
        decided(100, 1, 100),
        decided(110, 2, 100),
        decided(115, 2, -1, allowed=False),
        decided(119, 3, 119),
        decided(170, 3, -1, allowed=False),
        decided(190, 3, 190),
    ]

    assert [1, 1, 1, 1, 2, 3] == [one.epoch for one in placed(LIMIT, requests, {"ada": {100 * 10**6}})]


def test_windows_that_do_not_begin_with_first_hits_stay_as_they_are() -> None:
    """Their numbers are the same on all nodes."""
    requests = [decided(100, 1, 100)]

    assert requests == placed(Limit(10, 60), requests)


def test_a_bucket_is_as_full_as_it_was_when_it_began() -> None:
    """That is when it was first asked about, allowed or not."""
    bucket = Limit(60, 60, algorithm="token-bucket", burst=10, initial=4)
    requests = [decided(100, 1, 0, allowed=False), decided(101, 1, 0)]
    charges = [TrueCharge("ada", 1, 101 * SECOND_NS, 6, settling=False)]

    assert {"ada": 100 * SECOND_NS} == first_asked(requests)
    found = excess_by_place(bucket, charges, settling=False, born_ns=first_asked(requests))
    assert {("ada", 1): 1} == found
    assert {} == excess_by_place(bucket, charges, settling=False)


def test_a_bucket_that_refills_in_steps_is_judged_by_edges() -> None:
    """A full one admits its capacity just before one and just after it."""
    steps = Limit(10, 60, algorithm="gcra", refill="interval")

    def charges(*moments_s: float) -> list[TrueCharge]:
        return [TrueCharge("ada", 0, round(moment_s * SECOND_NS), 10, settling=False) for moment_s in moments_s]

    assert {} == excess_by_place(steps, charges(119.9, 120), settling=False)
    assert {("ada", 0): 10} == excess_by_place(steps, charges(120, 179.9), settling=False)


def test_a_calendars_windows_have_the_calendars_numbers() -> None:
    """Whose days are not all as long."""
    limit = Limit(1, 86_400, algorithm="fixed-window", align="calendar", timezone="Europe/Berlin")
    noon_ns = 1_761_472_800 * SECOND_NS
    hour_ns = 3600 * SECOND_NS

    assert number_of(limit, noon_ns) == number_of(limit, noon_ns + 12 * hour_ns - 1)
    assert number_of(limit, noon_ns) + 1 == number_of(limit, noon_ns + 13 * hour_ns)
