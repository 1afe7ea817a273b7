"""The cost of a decision, beside the floor of an increment in a dictionary."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from itertools import cycle
from random import Random
from statistics import fmean
from typing import Any, Final

from bench.child import Missing, answer, in_a_process
from bench.decisions.candidate import (
    Candidate,
    Setting,
    floor,
    floor_of_new,
    ours,
    ours_bucket,
    ours_fixed,
    ours_hit,
    ours_many,
    ours_with_a_hub,
)
from bench.decisions.peers import ON_TOP, PEERS
from bench.decisions.timing import Measured, Plan, by_turns, cpu_ns, no_collector
from bench.report.found import Row, Spread

PART: Final = "decisions"
FLOOR: Final = "floor: `d[key] += 1`"
KEYS: Final = {1: "1 key", 10_000: "10 k keys", 1_000_000: "1 M keys"}
FULL: Final = Plan(rounds=21, calls=20_000)
QUICK: Final = Plan(rounds=3, calls=2_000)
PLAIN: Final = "`allow`"
OURS: Final[dict[str, Callable[[Setting], Candidate]]] = {
    PLAIN: ours,
    "`hit`": ours_hit,
    "`allow_many`, 256 at a time": ours_many,
    "`allow`, fixed window": ours_fixed,
    "`allow`, token bucket": ours_bucket(dry=False),
    "`allow`, token bucket that has run dry": ours_bucket(dry=True),
}
QUICK_OURS: Final = (PLAIN, "`hit`")
WITH_A_HUB: Final = {"`allow`, with a hub": ours_with_a_hub}
MAKERS: Final = {**OURS, **WITH_A_HUB, **PEERS, **ON_TOP}
FEW: Final = {*WITH_A_HUB, *ON_TOP}


def measure(*, quick: bool, only: str = "") -> Iterator[Row]:
    """Measures all candidates in all cases; the floor is the one beside the first candidate."""
    seen: set[str] = set()
    for name, maker, pure in candidates(quick=quick):
        if only not in name:
            continue
        for keys in KEYS:
            if keys == max(KEYS) and (quick or maker in FEW or (pure and maker != PLAIN)):
                continue
            # A refusal costs the same with a million keys as with ten thousand, and slow limiters take long to fill.
            for admitted in (True,) if keys == max(KEYS) and (pure or maker in PEERS) else (True, False):
                task = {"maker": maker, "keys": keys, "admitted": admitted, "quick": quick}
                for floor_row, row in _of_a_child(name, task, pure=pure):
                    if floor_row is not None and row.case not in seen:
                        seen.add(row.case)
                        yield floor_row
                    yield row


def candidates(*, quick: bool) -> Iterator[tuple[str, str, bool]]:
    """Yields each candidate: its name in the table, its name in this module, and whether Python decides alone."""
    of_ours = QUICK_OURS if quick else OURS
    yield from ((f"reconverge, {maker}", maker, False) for maker in of_ours)
    if not quick:
        yield from ((f"reconverge, {maker}", maker, False) for maker in WITH_A_HUB)
    yield from ((f"reconverge in pure Python, {maker}", maker, True) for maker in of_ours)
    if not quick:
        yield from ((maker, maker, False) for maker in (*PEERS, *ON_TOP))


def case_of(keys: int, strings: str, *, admitted: bool) -> str:
    """Returns the name of a case in the table."""
    return f"{KEYS[keys]}, {strings}, {'admitted' if admitted else 'refused'}"


def _of_a_child(name: str, task: dict[str, Any], *, pure: bool) -> Iterator[tuple[Row | None, Row]]:
    keys, admitted = task["keys"], task["admitted"]
    try:
        found = in_a_process("bench.decisions.decisions", task, pure=pure)
    except Missing as error:
        yield None, Row(PART, case_of(keys, "same strings", admitted=admitted), name, missing=str(error))
        return
    for strings, fields in found.items():
        case = case_of(keys, strings, admitted=admitted)
        ns, floor_ns, ratio = (Spread(**fields[part]) for part in ("ns", "floor_ns", "ratio"))
        least = Row(PART, case, FLOOR, "floor", Spread(1.0, 1.0, 1.0), floor_ns, "ns")
        yield least, Row(PART, case, name, "floor", ratio, ns, "ns")


# -------------------------------------------------------------------- in the child


def fresh(count: int, choose: Callable[[int], Sequence[int]]) -> list[str]:
    """Returns new strings, equal to keys that exist, as requests bring them."""
    return [key_of(number) for number in choose(count)]


def key_of(number: int) -> str:
    """Returns a key like those of applications."""
    return f"customer-{number:07}"


def work(*, maker: str, keys: int, admitted: bool, quick: bool) -> dict[str, Any]:
    """Measures one candidate beside the floor."""
    plan = QUICK if quick else FULL
    random = Random(0)
    setting = Setting(keys, admitted)
    names = [key_of(number) for number in range(keys)]
    # The order is random, so that successive keys are not neighbours in memory.
    random.shuffle(names)
    with setting.stack, no_collector():
        candidate = MAKERS[maker](setting)
        if not candidate.admits(names[0]):
            raise RuntimeError(f"{maker} refuses at once")
        of_new = _of_new(candidate, names, plan.calls)
        candidate.settle(names)
        least = floor(names)
        gc.collect()
        turns = cycle(_slices(names, plan.calls))

        def choose(count: int) -> Sequence[int]:
            return random.choices(range(keys), k=count)

        measured = {
            strings: by_turns(candidate.run, candidate.arrange, least, draw, plan)
            for strings, draw in (
                ("same strings", lambda count: next(turns)[:count]),
                ("fresh strings", lambda count: fresh(count, choose)),
            )
        }
        if candidate.admits(names[-1]) != admitted:
            raise RuntimeError(f"{maker} has not {'admitted' if admitted else 'refused'}")
    if admitted and keys > 1:
        measured["new keys"] = of_new
    return {strings: asdict(found) for strings, found in measured.items()}


def _of_new(candidate: Candidate, names: Sequence[str], length: int) -> Measured:
    """Measures the first decision about each key, in turn with a dictionary that grows in the same way."""
    used: dict[str, int] = {}
    cost: list[float] = []
    floors: list[float] = []
    for start in range(0, len(names), length):
        part = names[start : start + length]
        floors.append(cpu_ns(partial(floor_of_new, used=used), part, time.thread_time_ns) / len(part))
        cost.append(cpu_ns(candidate.run, candidate.arrange(part), time.process_time_ns) / len(part))
    # The mean counts, as only a few of the keys pay for the growth.
    return Measured.of([fmean(cost)], [fmean(floors)])


def _slices(names: Sequence[str], length: int) -> list[list[str]]:
    """Divides all keys into lists of that length in advance: making a list brings its strings into the caches."""
    whole = list(names) * -(-length // len(names))
    return [whole[start : start + length] for start in range(0, len(whole) - length + 1, length)]


if __name__ == "__main__":
    sys.exit(answer(work))
