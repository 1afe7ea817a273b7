"""Goal: how a key stands is said in a sentence that is true. Method: answers of a hub that are made by hand."""

from __future__ import annotations

from typing import Any

import pytest

from reconverge.agent.fleet_usage import FleetUsage
from reconverge.integrations.console.key_page import sentence_of


def usage(**changes: Any) -> FleetUsage:
    """Half of a limit of 10 is used, on two nodes."""
    said: dict[str, Any] = {
        "used": 5,
        "left": 5,
        "allowances": 0,
        "limit": 10,
        "nodes": 2,
        "next_free": 0.0,
        "learning": 0.0,
        "fleetwide": True,
    }
    return FleetUsage(**said | changes)


REFUSED = "Requests are refused: {}, if nothing more is used."
LOST = "The hub has lost data and grants nothing of this key for {}: nodes keep the allowances that they had."


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({}, "5 of 10 are left; none of them is granted yet."),
        ({"allowances": 3}, "5 of 10 are left; 3 of them are granted to 2 nodes as allowances."),
        ({"used": 10, "left": 0, "next_free": 7.25}, REFUSED.format("10 of 10 are used; one fits in 7.2 s")),
        (
            {"used": 12, "left": 0, "next_free": 7200.0},
            REFUSED.format("12 of 10 are used, 2 more than the limit; one fits in 2.0 hours"),
        ),
        ({"used": 10, "left": 0}, REFUSED.format("10 of 10 are used; one fits again at any moment")),
        ({"learning": 200.0}, LOST.format("3.3 minutes")),
    ],
)
def test_a_sentence_says_how_a_key_stands(changes: dict[str, Any], sentence: str) -> None:
    """Refused and until when, or what is left and where, or that the hub has lost data."""
    assert sentence == sentence_of(usage(**changes))
