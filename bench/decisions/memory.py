"""Measures the memory of a million keys by the size of the process, beside a dictionary of integers."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from bench.child import Missing, answer, in_a_process
from bench.decisions.candidate import Candidate, Setting, as_they_are, each, ours, ours_among_others
from bench.decisions.decisions import FLOOR, key_of
from bench.decisions.peers import PEERS
from bench.report.found import Row, Spread

PART: Final = "memory"
KEYS: Final = 1_000_000
AT_ONCE: Final = 10_000
"""The number of keys after which the measurement waits for answers, as keys come no faster than they are answered."""
KEYS_QUICK: Final = 20_000
DICTIONARY: Final = "dictionary"
OF_A_DICTIONARY: Final = FLOOR
WHOLE: Final = "all but the strings"
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


def measure(*, quick: bool, only: str = "") -> Iterator[Row]:
    """Measures all limiters that can have a million keys; ours also part by part."""
    least = _of_a_child(DICTIONARY, KEYS_QUICK if quick else KEYS)[WHOLE]
    yield Row(PART, WHOLE, OF_A_DICTIONARY, "dictionary", _once(1.0), _once(least), "bytes for a key")
    for name, maker, keys, pure in _candidates(quick=quick):
        if only not in name:
            continue
        try:
            found = _of_a_child(maker, keys, pure=pure)
        except Missing as error:
            yield Row(PART, WHOLE, name, missing=str(error))
            continue
        for case, size in found.items():
            yield Row(PART, case, name, "dictionary", _once(size / least), _once(size), "bytes for a key")


def _candidates(*, quick: bool) -> Iterator[tuple[str, str, int, bool]]:
    keys = KEYS_QUICK if quick else KEYS
    yield "reconverge, alone", "ours", keys, False
    yield "reconverge in pure Python, alone", "ours", keys, True
    if not quick:
        yield "reconverge, with a hub", "with a hub", keys, False
        yield from ((name, name, keys, False) for name in PEERS if "get_window_stats" not in name)


def _of_a_child(maker: str, keys: int, *, pure: bool = False) -> dict[str, float]:
    found: dict[str, float] = in_a_process("bench.decisions.memory", {"maker": maker, "keys": keys}, pure=pure)
    return found


def _once(value: float) -> Spread:
    return Spread.of([value])


# -------------------------------------------------------------------- in the child


def _dictionary(_setting: Setting) -> Candidate:
    used: dict[str, int] = {}

    def count(key: str) -> bool:
        used[key] = used.get(key, 0) + 1000  # an integer of its own for each key, as a real counter has
        return True

    return Candidate(each(count), count, arrange=as_they_are)


MAKERS: Final[dict[str, Callable[[Setting], Candidate]]] = {
    DICTIONARY: _dictionary,
    "ours": ours,
    "with a hub": ours_among_others,
    **PEERS,
}


def work(*, maker: str, keys: int) -> dict[str, float]:
    """Returns the bytes by which each key has made the process larger."""
    setting = Setting(keys, admitted=True)
    with setting.stack:
        candidate = MAKERS[maker](setting)
        first = [key_of(keys)]
        candidate.run(candidate.arrange(first))
        candidate.settle(first)  # the memory of code and connections that the first calls load is not that of keys
        gc.collect()
        empty, places = _occupied(), _in_places()
        names = [key_of(number) for number in range(keys)]
        strings = _occupied()
        for start in range(0, keys, AT_ONCE):
            candidate.run(candidate.arrange(names[start : start + AT_ONCE]))
            candidate.settle(names[: start + AT_ONCE])
        gc.collect()
        full = _occupied()
        found = {WHOLE: (full - strings) / keys, "the strings": (strings - empty) / keys}
        of_places = _in_places() - places
        if of_places > 0:
            found |= {"places": of_places / keys, "index and all else": (full - strings - of_places) / keys}
    return found


def _occupied() -> int:
    """Returns the bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


def _in_places() -> int:
    """Returns the bytes in memory for which huge pages were requested: the tables of the compiled kernel."""
    size = total = 0
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "Rss":
            size = int(value.split()[0]) * 1024
        elif name == "VmFlags" and "hg" in value.split():
            total += size
    return total


if __name__ == "__main__":
    sys.exit(answer(work))
