"""Goal: how guards and frameworks decide may change, and what they answer does not: not a byte, and no charge.

Method: cases that are drawn by their numbers (rules of all kinds, one or several; requests as servers make them and as
none should; what changes meanwhile) are run, and their answers compared with those that were recorded.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.integrations.corpus.recorded import DIGESTS, IN_FULL, IN_FULL_MAX, KINDS, answers, digest, in_full

CHUNK = 50


@pytest.mark.parametrize(
    ("kind", "first"), [(kind, first) for kind, (_, count) in KINDS.items() for first in range(0, count, CHUNK)]
)
def test_a_case_answers_as_it_was_recorded(kind: str, first: int) -> None:
    """The first answer that differs is shown."""
    recorded: dict[str, Any] = json.loads(DIGESTS.read_text())
    for number in range(first, first + CHUNK):
        steps, expected = answers(kind, number), recorded[f"{kind} {number}"]
        differs = [at for at, step in enumerate(steps) if digest(step) != expected[8 * at : 8 * at + 8]]

        assert [] == differs, f"{kind} {number}, step {differs[0]}: {steps[differs[0]]}"
        assert len(expected) == 8 * len(steps)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_recorded_to_be_read_is_what_is_compared(kind: str) -> None:
    """Else a digest would stand for nothing that can be read."""
    recorded = IN_FULL.read_text()
    for number in range(IN_FULL_MAX):
        assert in_full(kind, number, answers(kind, number)) in recorded
