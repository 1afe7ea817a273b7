"""When nodes are cut off is read as it is written."""

from __future__ import annotations

from random import Random

import pytest

from reconverge.cli.replay.link import Cut
from reconverge.errors import InvalidSetting


@pytest.mark.parametrize(
    ("text", "count", "start_s", "end_s"),
    [
        ("2@30s+20s", 2, 30.0, 50.0),
        ("all@8s+6s", 4, 8.0, 14.0),
        ("half@0+1.5", 2, 0.0, 1.5),
        (" 1@0.5s+0.25s ", 1, 0.5, 0.75),
    ],
)
def test_nodes_start_and_length_are_read(text: str, count: int, start_s: float, end_s: float) -> None:
    """In real seconds."""
    cut = Cut.parse(text, nodes=4, random=Random(0))

    assert count == len(cut.nodes)
    assert cut.nodes <= set(range(4))
    assert (start_s, end_s) == (cut.start_s, cut.end_s)


@pytest.mark.parametrize("text", ["", "2", "2@30s", "2@30s+", "x@1s+1s", "0@1s+1s", "5@1s+1s", "2@1s+0s", "2@-1s+1s"])
def test_what_cannot_be_read_is_quoted(text: str) -> None:
    """And the form is told where it was missed."""
    with pytest.raises(InvalidSetting) as caught:
        Cut.parse(text, nodes=4, random=Random(0))

    assert repr(text) in str(caught.value)


def test_the_seed_draws_who_is_cut_off() -> None:
    """The same seed cuts off the same nodes, and not all seeds do."""
    drawn = [Cut.parse("2@1s+1s", nodes=8, random=Random(seed)).nodes for seed in (1, 1, 2, 3)]

    assert drawn[0] == drawn[1]
    assert 1 < len(set(drawn))
