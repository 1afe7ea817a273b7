"""Keeps the results of the finders in a file, and makes the table of them."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, TypedDict

from bench.planted.catalogue import FAULTS
from bench.planted.fault import PlantedFault
from bench.planted.finders import BINDING, BOUND_CHAOS, CHAOS, EXPLORATION, FINDERS, MODEL, is_followed
from bench.planted.trying import ALSO_SOUND, CRASHED, FOUND, NOT_FOUND, WHOLE

RESULTS: Final = "planted.json"
PAGE: Final = "planted.md"
SUPERSCRIPT: Final = "⁰¹²³⁴⁵⁶⁷⁸⁹"


class KeptOutcome(TypedDict):
    """The outcome of one finder for one fault, as the file has it."""

    status: str
    seconds: float
    within: float
    words: str


Kept = dict[str, dict[str, KeptOutcome]]
"""The outcomes by fault and by finder."""


def kept(directory: Path) -> Kept:
    """Returns the outcomes of earlier runs."""
    path = directory / RESULTS
    return json.loads(path.read_text() or "{}") if path.exists() else {}


def keep(new: Kept, directory: Path) -> None:
    """Adds outcomes to those that are kept, without those of faults that are no longer planted; writes the table."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / RESULTS).open("a") as locked:  # others may write at the same time
        fcntl.flock(locked, fcntl.LOCK_EX)
        found = kept(directory)
        ordered = {fault.name: found.get(fault.name, {}) | new.get(fault.name, {}) for fault in FAULTS}
        (directory / RESULTS).write_text(json.dumps(ordered, indent=1) + "\n")
        (directory / PAGE).write_text(page(ordered))


def page(found: Kept) -> str:
    """Returns the page in Markdown."""
    return "\n".join(_lines(found)) + "\n"


def _lines(found: Kept) -> Iterator[str]:
    yield "# Planted faults"
    yield ""
    yield "`python -m bench.planted` plants each fault alone. A number is the seconds of processor time (of chaos, of"
    yield "real time) until a finder found the fault, with the kernel in Python; >25: not within 25; an empty cell was"
    yield "not tried. The model has no code: there the guard is taken out of the proof. The binding covers neither"
    yield "buckets nor sliding windows. An arrow: exploration began with some events. `--list` prints what each fault"
    yield "makes wrong."
    yield ""
    yield f"| fault | guard | {' | '.join(FINDERS)} |"
    yield "|---|---|" + "---|" * len(FINDERS)
    for fault in FAULTS:
        outcomes = found.get(fault.name, {})
        cells = " | ".join(_cell(finder, fault, outcomes) for finder in FINDERS)
        guard = "" if fault.guard is None else f"`{fault.guard.name}`"
        yield f"| {fault.name} | {guard} | {cells} |"
    yield ""
    yield from _sums(found)
    yield ""
    yield "No scenario of chaos has:"
    yield ""
    yield from (f"{number}. {reason}." for number, reason in enumerate(_reasons(), start=1))
    remarks: dict[str, list[str]] = {}
    for fault in FAULTS:
        if fault.remark:
            remarks.setdefault(fault.remark, []).append(f"*{fault.name}*")
    if remarks:
        yield ""
        yield "Why some are not found:"
        yield ""
        yield from (f"- {', '.join(names)}: {remark}." for remark, names in remarks.items())


def _reasons() -> list[str]:
    """Returns the reasons why faults are not in any scenario of chaos, in the order of the table."""
    return list(dict.fromkeys(fault.beyond_chaos for fault in FAULTS if fault.beyond_chaos))


def _cell(finder: str, fault: PlantedFault, outcomes: Mapping[str, KeptOutcome]) -> str:
    if finder == MODEL and fault.guard is None:
        return "-"
    if (finder == BINDING and not fault.modelled) or (finder == BOUND_CHAOS and not is_followed(fault)):
        return "uncovered"
    if finder == CHAOS and not fault.chaos:
        return f"uncovered{SUPERSCRIPT[_reasons().index(fault.beyond_chaos) + 1]}"
    outcome = outcomes.get(finder)
    if outcome is None:
        return ""
    begun = "→" if finder == EXPLORATION and fault.case.start else ""
    if outcome["status"] == FOUND:
        return f"{outcome['seconds']:.0f}{begun}"
    if outcome["status"] == NOT_FOUND:
        return f">{outcome['within']:.0f}{begun}"
    return {
        WHOLE: "nothing to find" if finder != MODEL else "proved without it",
        CRASHED: "crashed",
        ALSO_SOUND: ALSO_SOUND,
    }[outcome["status"]]


def _sums(found: Kept) -> Iterator[str]:
    yield "| finder | found | tried |"
    yield "|---|---|---|"
    for finder in FINDERS:
        outcomes = [found[fault.name][finder] for fault in FAULTS if finder in found.get(fault.name, {})]
        yield f"| {finder} | {sum(outcome['status'] == FOUND for outcome in outcomes)} | {len(outcomes)} |"
