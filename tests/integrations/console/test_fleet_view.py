"""Goal: of snapshots a console makes the right sums, and an exposure that is neither more nor less than possible.

Method: snapshots made by hand, of nodes that declare alike and otherwise, that are well, silent and cut off.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reconverge.agent.snapshots.snapshot import Denial, KeyUse, LimitSnapshot, NodeSnapshot
from reconverge.integrations.console.fleet import DENIALS_SHOWN_MAX, Node, exposure, limits_named, view_of
from reconverge.integrations.console.seen import Seen
from reconverge.limit.limit import Limit
from tests.support.snapshots import LIMIT, some_snapshot

BALANCED = replace(LIMIT, capacity=100)
STRICT = replace(BALANCED, policy="strict", overshoot=0.0, dares=False)
AVAILABLE = replace(BALANCED, policy="available", overshoot=None)


def seen(name: str = "a1", silent_s: float = 0.0, before: NodeSnapshot | None = None, **changes: Any) -> Node:
    return Seen(name, some_snapshot(**changes), before, silent_s)


@pytest.mark.parametrize(
    ("limits", "live", "bound"),
    [
        ([(STRICT, True)] * 3, 0.0, 0.0),
        ([(BALANCED, True)] * 4, 14.0, 14.0),
        ([(BALANCED, True)] * 3 + [(BALANCED, False)], 13.0, 14.0),
        ([(BALANCED, True)] * 2 + [(replace(BALANCED, dares=False), True)] * 2, 12.0, 14.0),
        ([(replace(BALANCED, dares=False), True)] * 4, 0.0, 14.0),
        ([(BALANCED, False)] * 4, 0.0, 14.0),
        ([(replace(BALANCED, cost_max=5), True), (BALANCED, True)], 20.0, 20.0),
        ([(AVAILABLE, True)], 0.0, 0.0),
        ([(AVAILABLE, True)] * 3, 200.0, 200.0),
        ([(AVAILABLE, False)] * 2 + [(BALANCED, True)], 200.0, 200.0),
        ([(BALANCED, True), (replace(BALANCED, capacity=50), True)], 12.0, 12.0),
        ([(BALANCED, True), (replace(BALANCED, switch="shadow"), True)], None, None),
        ([(replace(STRICT, switch="off"), True)], None, None),
    ],
)
def test_exposure_is_what_may_be_exceeded_at_this_moment(
    limits: list[tuple[LimitSnapshot, bool]], live: float | None, bound: float | None
) -> None:
    """Beside the declared bound, as the table of bounds has it; none where a node refuses nothing."""
    assert (live, bound) == exposure(limits)


def test_counts_of_a_limit_are_those_of_all_nodes() -> None:
    """And how often it fires is by what has changed between two snapshots of each."""
    first = some_snapshot(at=100.0, limits=(replace(LIMIT, admitted=10, refused=0),))
    then = (replace(LIMIT, admitted=30, refused=4),)
    nodes = [seen("a1", before=first, at=102.0, limits=then), seen("b2", at=102.0, limits=then)]

    (limit,) = view_of(nodes)["limits"]

    assert (60, 8, 2) == (limit["admitted"], limit["refused"], limit["nodes"])
    assert (10.0, 2.0) == (limit["admitted_per_s"], limit["refused_per_s"])


def test_what_is_in_progress_is_that_of_all_nodes_that_are_heard_of() -> None:
    """A node that is silent may have ended, and its slots with it; a limit on a rate has none."""
    slots = (replace(LIMIT, in_use=2),)
    nodes = [seen("a1", limits=slots), seen("b2", limits=slots), seen("c3", silent_s=7.0, limits=slots)]

    assert 4 == view_of(nodes)["limits"][0]["in_use"]
    assert None is view_of([seen(limits=(LIMIT,))])["limits"][0]["in_use"]


def test_a_silent_node_grows_stale() -> None:
    """Its last report of its staleness was true then."""
    assert 7.1 == pytest.approx(view_of([seen(silent_s=7.0)])["nodes"][0]["staleness"])


def test_a_node_that_begins_anew_or_is_silent_has_no_rate() -> None:
    """Counts that fall are none, and an old rate is not of this moment."""
    before = some_snapshot(at=100.0, limits=(replace(LIMIT, admitted=10),))
    restarted = seen(before=before, at=102.0, limits=(replace(LIMIT, admitted=3, refused=0),))
    silent = seen(silent_s=7.0, before=before, at=102.0, limits=(replace(LIMIT, admitted=30),))

    for node in (restarted, silent):
        assert 0.0 == view_of([node])["nodes"][0]["admitted_per_s"]


def test_a_silent_node_is_shown_as_that() -> None:
    """With why; its keys are not of this moment, and its denials happened."""
    top, denials = (KeyUse("login", "ada", 3, 3),), (Denial(1.0, "login", 2, ("ada",)),)

    view = view_of([seen(silent_s=7.0, top=top, denials=denials)])

    assert "silent" == view["nodes"][0]["state"]
    assert "for 7 s" in view["nodes"][0]["grounds"][0]
    assert [] == view["keys"]
    assert 1 == len(view["denials"])


def test_of_a_key_that_several_nodes_know_the_most_used_counts() -> None:
    """One that has not heard of the others for long knows of less."""
    nodes = [seen("a1", top=(KeyUse("login", "ada", 2, 3),)), seen("b2", top=(KeyUse("login", "ada", 3, 3),))]

    assert [{"limit": "login", "key": "ada", "used": 3, "capacity": 3}] == view_of(nodes)["keys"]


def test_the_newest_denials_come_first_and_there_are_so_many() -> None:
    """Of all nodes together."""
    nodes = [
        seen(
            f"{node:x}",
            denials=tuple(Denial(10.0 * each + node, "login", 1, (f"{node}-{each}",)) for each in range(20)),
        )
        for node in range(4)
    ]

    moments = [each["at"] for each in view_of(nodes)["denials"]]

    assert DENIALS_SHOWN_MAX == len(moments)
    assert sorted(moments, reverse=True) == moments
    assert 193.0 == moments[0]


def test_denials_of_a_limit_and_key_are_one_with_their_sum_and_the_last_moment() -> None:
    """A key that is refused all the time would else fill the list alone."""
    nodes = [
        seen("a1", denials=(Denial(10.0, "login", 2, ("ada",)), Denial(30.0, "login", 3, ("ada",)))),
        seen("b2", denials=(Denial(20.0, "login", 5, ("ada",)), Denial(25.0, "login", 7, ("bob",)))),
    ]

    assert [(30.0, 10, ["ada"]), (25.0, 7, ["bob"])] == [
        (each["at"], each["count"], each["keys"]) for each in view_of(nodes)["denials"]
    ]


def test_what_a_limit_in_shadow_lets_through_counts_as_admitted() -> None:
    """It would have been refused, and was not."""
    first = some_snapshot(at=100.0, limits=(replace(LIMIT, switch="shadow", admitted=10, would_refuse=5),))
    then = (replace(LIMIT, switch="shadow", admitted=12, would_refuse=25),)

    (limit,) = view_of([seen(before=first, at=102.0, limits=then)])["limits"]

    assert (37, 25, 11.0) == (limit["admitted"], limit["would_refuse"], limit["admitted_per_s"])


def test_nodes_that_declare_a_limit_otherwise_are_told_of() -> None:
    """The limit is shown as most of them declare it, and so it is asked about."""
    other = replace(LIMIT, said="5/minute", declared={"quota": 5, "window": 60.0}, capacity=5)
    nodes = [seen(str(number), limits=(other if number else LIMIT,)) for number in range(3)]

    (limit,) = view_of(nodes)["limits"]

    assert ("5/minute", False) == (limit["said"], limit["declared_alike"])
    assert {"login": Limit(5, 60.0)} == limits_named(nodes, "login")


def test_quotas_of_a_limit_are_found_by_its_name() -> None:
    """And those of another limit that only begins so are not; what makes no limit is left out."""
    names = ("api", "api#daily", "apis", "api#odd")
    limits = tuple(replace(LIMIT, name=name) for name in names[:3])
    odd = replace(LIMIT, name="api#odd", declared={"quota": "many", "__class__": 1})

    assert ["api", "api#daily"] == list(limits_named([seen(limits=(*limits, odd))], "api"))
