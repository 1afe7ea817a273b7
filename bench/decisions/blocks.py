"""Measures the longest block of a thread by a single decision while keys come and tables grow, beside a dictionary."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, Final

from bench.child import Missing, answer, in_a_process
from bench.decisions.candidate import Setting, ours
from bench.decisions.decisions import key_of
from bench.decisions.peers import PEERS
from bench.decisions.timing import one_by_one_ns
from bench.report.found import Row, Spread

PART: Final = "longest block"
KEYS: Final = 2_000_000
KEYS_QUICK: Final = 20_000
REPEATS: Final = 3
DICTIONARY: Final = "dictionary: `d[key] = 1`"
OURS: Final = "reconverge, `allow`"
PURE: Final = "reconverge in pure Python, `allow`"
CASES: Final = {"p999": "p99.9 of a call", "max": "longest call", "gc": "a full garbage collection afterwards"}
BESIDE: Final = ("limits, fixed window", "rust-py-rate-limit, fixed window")


def measure(*, quick: bool, only: str = "") -> Iterator[Row]:
    """Measures each limiter several times, in turn, as each run has only one longest call."""
    names = [name for name in (OURS, PURE, *(() if quick else BESIDE)) if only in name]
    measured: dict[str, list[dict[str, float]]] = {name: [] for name in (DICTIONARY, *names)}
    for _ in range(1 if quick else REPEATS):
        for name, found in list(measured.items()):
            try:
                task = {"name": name, "keys": KEYS_QUICK if quick else KEYS}
                found.append(in_a_process("bench.decisions.blocks", task, pure=name == PURE))
            except Missing as error:
                yield Row(PART, CASES["max"], name, missing=str(error))
                del measured[name]
    for name, several in measured.items():
        for field, case in CASES.items():
            ratios = [one[field] / least[field] for one, least in zip(several, measured[DICTIONARY], strict=True)]
            us = Spread.of([one[field] for one in several])
            yield Row(PART, case, name, "dictionary", Spread.of(ratios), us, "µs")


# -------------------------------------------------------------------- in the child


def work(*, name: str, keys: int) -> dict[str, Any]:
    """Asks about new keys one after the other, and times each call."""
    names = [key_of(number) for number in range(keys)]
    gc.collect()
    gc.freeze()  # so that the garbage collector finds only objects of the limiter
    with ExitStack() as stack:
        call = _call(name, Setting(keys, admitted=True, stack=stack))
        single_ns = one_by_one_ns(call, names)
        begun_ns = time.thread_time_ns()
        gc.collect()
        collected_ns = time.thread_time_ns() - begun_ns
    took_ns = sorted(single_ns)
    return {"p999": took_ns[len(took_ns) * 999 // 1000] / 1e3, "max": took_ns[-1] / 1e3, "gc": collected_ns / 1e3}


def _call(name: str, setting: Setting) -> Callable[[str], object]:
    if name == DICTIONARY:
        counts: dict[str, int] = {}
        return lambda key: counts.__setitem__(key, 1)
    if name in (OURS, PURE):
        return ours(setting).admits
    return PEERS[name](setting).admits


if __name__ == "__main__":
    sys.exit(answer(work))
