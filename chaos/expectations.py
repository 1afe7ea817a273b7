"""What must be seen in particular scenarios, besides the invariants."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from math import ceil
from typing import Final

from chaos.case import Case, Expectation, Violation
from chaos.history import OK
from reconverge.clock import MILLISECOND_NS, SECOND_NS
from reconverge.syncer import BACKOFF_CAP_NS

UNNOTICED: Final = "unnoticed"
UNFLAGGED: Final = "unflagged"
BURST: Final = "burst"
BLOCKED: Final = "blocked"
UNTOLD: Final = "untold"
CROWDING: Final = "crowding"
LEAKED: Final = "leaked"
NAMELESS: Final = "nameless"

BACKOFF_SHARE_MIN: Final = 0.75
"""A back-off is shortened by up to a quarter, so that nodes do not march in step."""
RAMP_ATTEMPTS: Final = 6
"""Attempts at 1, 2, 4, 8 intervals and so on come before those at the longest back-off."""
CROWD_NS: Final = 100 * MILLISECOND_NS
CROWD_SHARE: Final = 0.5
STALE_SHARE: Final = 0.5


def notices(case: Case) -> Iterator[Violation]:
    """Every node finds out while it is going on that it is cut off, and not when the operating system gives up."""
    for life in case.survivors:
        if not any(one.outcome != OK and one.heard_ns and case.in_spell(one.heard_ns) for one in life.exchanges):
            yield Violation(UNNOTICED, f"node {life.node} had no exchange that failed while it was cut off")


def flags_staleness(case: Case) -> Iterator[Violation]:
    """While it goes on, somebody can see how old is what is known."""
    longest_ns = max(end_ns - begin_ns for begin_ns, end_ns in case.spells)
    most_s = max(
        (view.staleness_s for life in case.lives for view in life.views if case.start_ns <= view.t_ns), default=0.0
    )
    if most_s * SECOND_NS < STALE_SHARE * longest_ns:
        yield Violation(UNFLAGGED, f"nobody said that anything was older than {most_s:.2f} s")


def admits_all_the_time(case: Case) -> Iterator[Violation]:
    """Nobody is refused everything for longer than a window."""
    window_ns = case.limit.window_ns
    admitted = Counter(one.t_ns // window_ns for one in case.decisions if one.allowed)
    first, last = case.start_ns // window_ns + 1, case.load_end_ns // window_ns
    for window in range(first, last - 1):
        if not admitted[window] and not admitted[window + 1]:
            seconds = (window * window_ns - case.start_ns) / SECOND_NS
            yield Violation(BLOCKED, f"nothing was admitted for two windows, from {seconds:.1f} s on")
            return


def tells_kinds(*kinds: str) -> Expectation:
    """Each kind of failure is counted under its own name."""

    def expectation(case: Case) -> Iterator[Violation]:
        seen = {one.kind for one in case.exchanges}
        missing = [kind for kind in kinds if kind not in seen]
        if missing:
            yield Violation(UNTOLD, f"no failure was counted as {', '.join(missing)}; there were {sorted(seen - {''})}")

    return expectation


def does_not_catch_up(case: Case) -> Iterator[Violation]:
    """Whoever was held up goes on at no more than its pace ahead of time, and does not make up for what it missed."""
    most = ceil(case.interval_ns / case.interval_min_ns) + 1
    for life in case.lives:
        sent = [one.sent_ns for one in life.exchanges]
        for t_ns in (t_ns for t_ns, what in life.told if what.endswith(" over")):
            after = bisect_left(sent, t_ns + case.interval_ns) - bisect_left(sent, t_ns)
            if after > most:
                yield Violation(BURST, f"node {life.node} exchanged {after} times in an interval; {most} are allowed")


def does_not_crowd(case: Case) -> Iterator[Violation]:
    """When all are cut off, each tries about once in a back-off, and not in step with the others."""
    pause_ns = BACKOFF_SHARE_MIN * max(case.interval_ns, BACKOFF_CAP_NS)
    for begin_ns, end_ns in case.spells:
        attempts = Counter(one.account for one in case.exchanges if begin_ns <= one.sent_ns < end_ns)
        most = ceil((end_ns - begin_ns) / pause_ns) + RAMP_ATTEMPTS
        crowding = {account: count for account, count in attempts.items() if count > most}
        if crowding:
            yield Violation(
                CROWDING, f"{len(crowding)} nodes tried up to {max(crowding.values())} times; {most} are enough"
            )


def comes_back_spread_out(case: Case) -> Iterator[Violation]:
    """When the server is there again, not all of them are at the same moment."""
    first: dict[str, int] = {}
    for one in case.exchanges:
        if one.sent_ns >= case.healed_ns:
            first.setdefault(one.account, one.sent_ns)
    moments = sorted(first.values())
    most = max((bisect_left(moments, t_ns + CROWD_NS) - number for number, t_ns in enumerate(moments)), default=0)
    if most > CROWD_SHARE * len(moments):
        yield Violation(CROWDING, f"{most} of {len(moments)} came back within {CROWD_NS / SECOND_NS:g} s")


def leaks_nothing(case: Case) -> Iterator[Violation]:
    """After all those loops there are no more threads and descriptors than after the first."""
    for life in case.survivors:
        facts = life.facts or {}
        if any(facts["after"][name] > count for name, count in facts["before"].items()):
            yield Violation(LEAKED, f"{facts['before']} have become {facts['after']}")


def has_names(least: int) -> Expectation:
    """Every process that admitted anything did so under a name of its own, and there were so many."""

    def expectation(case: Case) -> Iterator[Violation]:
        by_process = {life.pid: {one.account for one in life.exchanges} for life in case.lives if life.admitted}
        names = [name for names in by_process.values() for name in names]
        if len(by_process) < least or len(names) != len(set(names)) or not all(by_process.values()):
            yield Violation(NAMELESS, f"{len(by_process)} processes exchanged under {len(set(names))} names")

    return expectation


def counts_overflow(case: Case) -> Iterator[Violation]:
    """What is beyond the cap is counted together, and said to be."""
    if not any((life.facts or {}).get("overflowed") for life in case.survivors):
        yield Violation(UNTOLD, "nobody says anything of keys beyond the cap")
