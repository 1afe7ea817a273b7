"""Faults are read as they are written, and mistakes in them are told."""

from __future__ import annotations

from random import Random

import pytest

from reconverge.clock import SECOND_NS
from reconverge.errors import InvalidSetting
from reconverge.simulation.fault import Direction, Fault, FaultKind

WINDOW_NS = 10 * SECOND_NS


def read(text: str, nodes: int = 8) -> Fault:
    """One fault of a fleet of eight with windows of ten seconds."""
    return Fault.parse(text, nodes=nodes, window_ns=WINDOW_NS, random=Random(1))


@pytest.mark.parametrize(
    ("text", "kind", "start_s", "end_s", "count", "amount", "direction"),
    [
        ("cut:half@2w+5w", FaultKind.CUT, 20, 70, 4, 0.0, Direction.BOTH),
        ("cut:3:requests@1.5s+20ms", FaultKind.CUT, 1.5, 1.52, 3, 0.0, Direction.REQUESTS),
        ("cut:all:replies@0w+1w", FaultKind.CUT, 0, 10, 8, 0.0, Direction.REPLIES),
        ("down@3w+1w", FaultKind.DOWN, 30, 40, 0, 0.0, Direction.BOTH),
        ("slow:100@1w+3w", FaultKind.SLOW, 10, 40, 0, 100.0, Direction.BOTH),
        ("loss:30%@0w+9w", FaultKind.LOSS, 0, 90, 0, 0.3, Direction.BOTH),
        ("repeat:0.25@0w+9w", FaultKind.REPEAT, 0, 90, 0, 0.25, Direction.BOTH),
        ("lose-data@5.3w", FaultKind.LOSE_DATA, 53, 53, 0, 0.0, Direction.BOTH),
        ("crash:one@3w+2w", FaultKind.CRASH, 30, 50, 1, 0.0, Direction.BOTH),
        ("offset:2:-0.5s", FaultKind.OFFSET, 0, 0, 2, -0.5, Direction.BOTH),
        ("jump:1:3600@2w", FaultKind.JUMP, 20, 20, 1, 3600.0, Direction.BOTH),
    ],
)
def test_every_kind_is_read(
    text: str, kind: FaultKind, start_s: float, end_s: float, count: int, amount: float, direction: Direction
) -> None:
    """A fault names its kind, its victims, its size, its beginning and its length."""
    fault = read(text)

    assert kind is fault.kind
    assert (start_s * SECOND_NS, end_s * SECOND_NS) == (fault.start_ns, fault.end_ns)
    assert count == len(fault.nodes)
    assert amount == fault.amount
    assert direction is fault.direction


@pytest.mark.parametrize(
    "text",
    [
        "",
        "flood@1w+1w",
        "cut@1w+1w",
        "cut:half",
        "cut:half@1w",
        "cut:half@1w+0w",
        "cut:9@1w+1w",
        "cut:0@1w+1w",
        "cut:some@1w+1w",
        "cut:half:sideways@1w+1w",
        "cut:half:requests:replies@1w+1w",
        "cut:half@1x+1w",
        "down@+1w",
        "slow@1w+1w",
        "slow:0@1w+1w",
        "slow:fast@1w+1w",
        "loss:150%@1w+1w",
        "lose-data@1w+1w",
        "lose-data",
        "offset:1",
        "jump:1:1e9@1w",
    ],
)
def test_a_fault_that_cannot_be_read_is_quoted_and_the_forms_are_told(text: str) -> None:
    """Whoever mistypes sees what was typed, and how it is done."""
    with pytest.raises(InvalidSetting) as caught:
        read(text)

    assert repr(text) in str(caught.value)
    assert "START+LENGTH" in str(caught.value)


def test_which_nodes_are_cut_off_depends_on_the_draw_alone() -> None:
    """The same seed concerns the same nodes."""
    first = Fault.parse("cut:half@0w+1w", nodes=8, window_ns=WINDOW_NS, random=Random(5))
    second = Fault.parse("cut:half@0w+1w", nodes=8, window_ns=WINDOW_NS, random=Random(5))

    assert first == second
