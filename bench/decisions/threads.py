"""Measures decisions of several threads together, beside one thread; counts lost and wrongly admitted ones."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, Final

from bench.child import Missing, answer, in_a_process
from bench.decisions.candidate import DAY_S, ROOMY, Setting, compiled_unless_asked
from bench.decisions.decisions import key_of
from bench.decisions.peers import PEERS
from bench.report.found import Row, Spread
from reconverge import Agent, Limit

PART: Final = "threads"
THREADS: Final = (1, 2, 4, 8)
KEYS: Final = 10_000
OURS: Final = "reconverge, `allow`"
CALLS: Final = {OURS: 10_000_000, "limits, fixed window": 200_000, "rust-py-rate-limit, fixed window": 2_000_000}
"""The total number of calls of all threads; slow limiters make fewer."""
CALLS_QUICK: Final = 40_000
ROUNDS: Final = 5
TIGHT_KEYS: Final = 100
TIGHT_QUOTA: Final = 1_000


def measure(*, quick: bool, only: str = "") -> Iterator[Row]:
    """Measures our limiter and others."""
    for name in (OURS,) if quick else CALLS:
        if only not in name:
            continue
        task = {"name": name, "calls": CALLS_QUICK if quick else CALLS[name], "rounds": 2 if quick else ROUNDS}
        try:
            found = in_a_process("bench.decisions.threads", task)
        except Missing as error:
            yield Row(PART, case_of(1), name, missing=str(error))
            continue
        for threads in THREADS:
            fields = found[str(threads)]
            ratio, per_s = Spread(**fields["ratio"]), Spread(**fields["per_s"])
            yield Row(PART, case_of(threads), name, "one thread", ratio, per_s, "million decisions per second")
        if "lost" in found:
            lost, over = Spread.of([found["lost"]]), Spread.of([found["over"]])
            yield Row(PART, f"{max(THREADS)} threads", f"{name}: lost", measured=lost, unit="decisions")
            yield Row(PART, f"{max(THREADS)} threads", f"{name}: admitted too much", measured=over, unit="decisions")


def case_of(threads: int) -> str:
    """Returns the name of a case in the table."""
    return "1 thread" if threads == 1 else f"{threads} threads"


# -------------------------------------------------------------------- in the child


def work(*, name: str, calls: int, rounds: int) -> dict[str, Any]:
    """Measures the numbers of threads in turn, so that other work on the machine slows all of them alike."""
    keys = [key_of(number) for number in range(KEYS)]
    per_s: dict[int, list[float]] = {threads: [] for threads in THREADS}
    compiled_unless_asked()
    limiter = Agent("memory://").limit("bench", Limit(ROOMY, DAY_S))
    with ExitStack() as stack:
        setting = Setting(KEYS, admitted=True, stack=stack)
        decide: Callable[[str], object] = limiter.allow if name == OURS else PEERS[name](setting).admits
        for key in keys:
            decide(key)
        for _ in range(rounds):
            for threads in THREADS:
                per_s[threads].append(calls / _took_s(decide, keys, threads, calls) / 1e6)
        found: dict[str, Any] = {
            str(threads): {
                "per_s": _fields(measured),
                "ratio": _fields([each / one for each, one in zip(measured, per_s[1], strict=True)]),
            }
            for threads, measured in per_s.items()
        }
        if name == OURS:
            made = KEYS + rounds * sum(threads * _calls_each(calls, threads) for threads in THREADS)
            counted = sum(limiter.usage(key).total for key in keys)
            found["lost"] = made - counted
            found["over"] = _over_admitted()
    return found


def _over_admitted() -> int:
    """Returns the cost admitted beyond a quota that threads use up together."""
    limiter = Agent("memory://").limit("tight", Limit(TIGHT_QUOTA, DAY_S))
    keys = [key_of(number) for number in range(TIGHT_KEYS)]
    admitted: list[int] = []

    def use_up() -> None:
        admitted.append(sum(limiter.allow(key) for _ in range(TIGHT_QUOTA // 4) for key in keys))

    _together(use_up, max(THREADS))
    return sum(admitted) - TIGHT_KEYS * TIGHT_QUOTA


def _took_s(decide: Callable[[str], object], keys: Sequence[str], threads: int, calls: int) -> float:
    each = _calls_each(calls, threads)

    def ask() -> None:
        for _ in range(each // len(keys)):
            for key in keys:
                decide(key)
        for key in keys[: each % len(keys)]:
            decide(key)

    return _together(ask, threads)


def _calls_each(calls: int, threads: int) -> int:
    return calls // threads


def _together(target: Callable[[], None], threads: int) -> float:
    """Returns the seconds from the common start until the last thread has ended."""
    gate = threading.Barrier(threads + 1)

    def run() -> None:
        gate.wait()
        target()

    started = [threading.Thread(target=run) for _ in range(threads)]
    for thread in started:
        thread.start()
    gate.wait()
    begun_s = time.perf_counter()
    for thread in started:
        thread.join()
    return time.perf_counter() - begun_s


def _fields(values: list[float]) -> dict[str, float]:
    spread = Spread.of(values)
    return {"median": spread.median, "low": spread.low, "high": spread.high}


if __name__ == "__main__":
    sys.exit(answer(work))
