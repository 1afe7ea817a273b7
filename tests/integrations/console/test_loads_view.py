"""Goal: of what processes tell of their stacks a console makes the right sums, each process once.

Method: snapshots made by hand, of processes that are well, silent, told of twice and of other shapes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reconverge.agent.snapshots.load_snapshot import LoadSnapshot
from reconverge.integrations.console.loads import PROCESSES_SHOWN_MAX, Process, view_of_loads
from reconverge.integrations.console.seen import Seen
from tests.support.loads import API, SLOTS, WORKER, later, some_load


def seen(number: int = 0, *, before: LoadSnapshot | None = None, silent_s: float = 0.0, **changes: Any) -> Process:
    """A process as a console has seen it, two seconds after `before`."""
    load = replace(some_load(), pid=number, process=f"process-{number}")
    newest = load if before is None else later(load, seconds=2.0, admitted=(2, 10), refused=(0, 30))
    return Seen(f"{number:x}", replace(newest, **changes), before and load, silent_s)


def test_classes_and_layers_are_those_of_all_processes() -> None:
    """Per second by what has changed between two snapshots, and since the processes began."""
    view = view_of_loads([seen(number, before=some_load()) for number in range(2)])

    (stack,) = view["stacks"]
    critical, get = stack["classes"]
    slots, worker = stack["layers"]
    assert (2, 12.0, 30.0) == (stack["processes"], stack["admitted_per_s"], stack["refused_per_s"])
    assert (2.0, 0.0) == (critical["admitted_per_s"], critical["refused_per_s"])
    assert (10.0, 30.0, 60, 68) == (get["admitted_per_s"], get["refused_per_s"], get["admitted"], get["refused"])
    assert (30.0, {"critical": 0.0, "GET": 30.0}) == (slots["refused_per_s"], slots["by_class"])
    assert (["shadow"], 0.0) == (worker["switches"], worker["refused_per_s"])


def test_slots_are_added_up_and_readings_have_a_range() -> None:
    """Each process has a row with what its layers have set."""
    fuller = replace(API, layers=(replace(SLOTS, readings={"limit": 4.0, "in_flight": 4.0}), WORKER))
    (stack,) = view_of_loads([seen(1), seen(2, stacks=(fuller,))])["stacks"]

    assert (7.0, 12.0) == (stack["in_flight"], stack["limit"])
    assert {"limit": [4.0, 8.0], "in_flight": [3.0, 4.0]} == stack["layers"][0]["readings"]
    assert [(1, 3.0, 8.0, 1.5, 0.25), (2, 4.0, 4.0, 1.5, 0.25)] == [
        tuple(row[name] for name in ("pid", "in_flight", "limit", "pressure", "rejected_fraction"))
        for row in stack["rows"]
    ]


def test_a_silent_process_counts_for_nothing_and_is_shown_as_that() -> None:
    """It may have ended, and its slots with it."""
    view = view_of_loads([seen(1), seen(2, before=some_load(), silent_s=7.0)])

    (stack,) = view["stacks"]
    assert (1, 1, 0.0, 3.0) == tuple(stack[name] for name in ("processes", "silent", "refused_per_s", "in_flight"))
    assert [False, True] == [row["silent"] for row in stack["rows"]]
    assert {"render": 3} == view["waiting"]


def test_all_processes_silent_still_make_a_page() -> None:
    """With nothing of this moment."""
    (stack,) = view_of_loads([seen(1, silent_s=7.0)])["stacks"]

    assert (0, 1, None, None) == tuple(stack[name] for name in ("processes", "silent", "in_flight", "limit"))


def test_a_process_that_two_agents_tell_of_counts_once() -> None:
    """The requests that wait for the limits of each of them are added up."""
    twice = [seen(1), replace(seen(1), name="other")]

    view = view_of_loads(twice)

    assert [1] == [stack["processes"] for stack in view["stacks"]]
    assert {"render": 6} == view["waiting"]


@pytest.mark.parametrize(
    "before",
    [
        replace(some_load(), stacks=()),
        replace(some_load(), stacks=(replace(API, layers=(SLOTS,)),)),
        replace(some_load(), stacks=(replace(API, name="other"),)),
        replace(
            some_load(), stacks=(replace(API, admitted=(99, 99), layers=(replace(SLOTS, refused=(9, 99)), WORKER)),)
        ),
    ],
    ids=["none", "other-layers", "other-name", "restarted"],
)
def test_a_stack_that_was_another_one_before_has_no_rate(before: LoadSnapshot) -> None:
    """Nor has one that counts anew."""
    load = replace(some_load(), at=some_load().at + 1.0)

    (stack,) = view_of_loads([Seen("a", load, before)])["stacks"]

    assert (0.0, 0.0) == (stack["admitted_per_s"], stack["refused_per_s"])


def test_stacks_of_another_name_or_shape_stand_apart() -> None:
    """And are in an order that does not change with what they shed."""
    stacks = (API, replace(API, name="admin"), replace(API, layers=(SLOTS,)))

    names = [(each["name"], len(each["layers"])) for each in view_of_loads([seen(1, stacks=stacks)])["stacks"]]

    assert [("admin", 2), ("api", 1), ("api", 2)] == names


def test_so_many_processes_have_a_row_those_that_shed_most_first() -> None:
    """The others are in the sums."""
    many = [seen(number, before=some_load() if number == 7 else None) for number in range(PROCESSES_SHOWN_MAX + 1)]

    (stack,) = view_of_loads(many)["stacks"]

    assert (PROCESSES_SHOWN_MAX, 1, 7) == (len(stack["rows"]), stack["rows_left_out"], stack["rows"][0]["pid"])
    assert PROCESSES_SHOWN_MAX + 1 == stack["processes"]
