"""Expectations of scenarios whose requests ask the hub: none waits longer than an ask may, nor for a silent hub."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final

from chaos.judge.case import Case, Violation
from chaos.judge.history import OK, Decide, Life
from reconverge.clock import MILLISECOND_NS, SECOND_NS
from reconverge.hub.headroom import SEALED_AFTER_S
from reconverge.limiter.asking import WITHIN_S
from reconverge.limiter.waiting.patience import LOST_MAX_NS

WAITED_LONG: Final = "waited long"
WAITED_AGAIN: Final = "waited again"
UNASKED: Final = "unasked"
STANDSTILL: Final = "standstill"

WITHIN_NS: Final = round(WITHIN_S * SECOND_NS)
HELD_UP: Final = 3
"""The number of times that the machine may hold up a request: while it waits (which is not the hub's time, as
`limiter/waiting/patience.py` explains), before it is woken, and before its end."""
GRAIN_NS: Final = 10 * MILLISECOND_NS
"""The precision, in nanoseconds: loops round to milliseconds, and handle due events one after the other."""
SHARED_LEAST: Final = 4
"""Sealed shares admit at least one in this many: a share of one request in a sliding window admits one in two."""
ASKED_MIN: Final = 10
"""The fewest waiting requests that show that requests ask."""


def waits_no_longer(case: Case) -> Iterator[Violation]:
    """Checks that no request took longer than an ask may, apart from delays by the machine.

    Before the hub has answered a life for the first time, its requests may wait until the process has connected. The
    machine's delay is the largest one of an application without a limiter, in the same process. On cores with much to
    do, many small delays add up while a request waits. That application sees the last of them: they are counted by
    request.
    """
    for life in case.lives:
        late_ns = max((one.late_ns for one in life.beside), default=0)
        first_ns = min((one.heard_ns for one in life.exchanges if one.outcome == OK and one.heard_ns), default=None)
        for one in life.decisions:
            starting = first_ns is None or one.t_ns < first_ns
            most_ns = WITHIN_NS + GRAIN_NS + HELD_UP * late_ns + LOST_MAX_NS * starting + one.held_ns
            if one.took_ns > most_ns:
                words = f"on node {life.node} a request took {_ms(one.took_ns)} ms; {_ms(most_ns)} ms are allowed"
                yield Violation(WAITED_LONG, words)
                break


def waits_for_no_silent_hub(case: Case) -> Iterator[Violation]:
    """Checks that after an unanswered request or a failed exchange, none waits until the hub answers again."""
    for life in case.lives:
        answered_ns = sorted(one.heard_ns for one in life.exchanges if one.outcome == OK and one.heard_ns)
        silent_ns = sorted(_silences(life, answered_ns))
        again = [one for one in life.decisions if one.waited and _is_silent(one.t_ns, silent_ns, answered_ns)]
        if again:
            moment_s = (again[0].t_ns - case.start_ns) / SECOND_NS
            words = f"on node {life.node} {len(again)} requests waited for a silent hub, first at {moment_s:.2f} s"
            yield Violation(WAITED_AGAIN, words)


def _silences(life: Life, answered_ns: list[int]) -> Iterator[int]:
    """Returns the moments from which on it was known that the hub is silent."""
    for one in life.decisions:
        over_ns = one.t_ns + one.took_ns
        if one.waited and one.took_ns >= WITHIN_NS and not _any_within(answered_ns, one.t_ns, over_ns):
            yield over_ns
    for exchange in life.exchanges:
        if exchange.outcome != OK and exchange.heard_ns is not None:
            yield exchange.heard_ns + GRAIN_NS


def _is_silent(moment_ns: int, silent_ns: list[int], answered_ns: list[int]) -> bool:
    """Returns whether the hub has not answered since it was last known to be silent."""
    place = bisect_left(silent_ns, moment_ns)
    return place > 0 and not _any_within(answered_ns, silent_ns[place - 1] - GRAIN_NS, moment_ns)


def _any_within(moments_ns: list[int], begin_ns: int, end_ns: int) -> bool:
    return bisect_left(moments_ns, begin_ns) < bisect_right(moments_ns, end_ns)


def asks_in_good_times(case: Case) -> Iterator[Violation]:
    """Checks that requests waited before anything went wrong, and again when all was well.

    Otherwise the run shows nothing.
    """
    first_ns = min((begin_ns for begin_ns, _ in case.spells), default=case.load_end_ns)
    before = waited(case, case.start_ns, first_ns)
    after = waited(case, case.healed_ns, case.load_end_ns)
    if min(len(before), len(after)) < ASKED_MIN:
        words = f"{len(before)} requests waited before anything went wrong, and {len(after)} afterwards"
        yield Violation(UNASKED, f"{words}; {ASKED_MIN} were to")


def goes_on_by_shares(case: Case) -> Iterator[Violation]:
    """Checks that requests are admitted while the hub is away, once sealed shares have opened.

    At the latest, that is two windows after a window has begun SEALED_AFTER_S after the hub's last answer.
    """
    for begin_ns, end_ns in case.spells:
        opened_ns = begin_ns + SEALED_AFTER_S * SECOND_NS + 3 * case.limit.window_ns
        windows = max(0, end_ns - opened_ns) // case.limit.window_ns
        admitted = sum(one.cost for one in case.decisions if one.allowed and opened_ns <= one.t_ns < end_ns)
        if admitted < windows * case.limit.capacity // SHARED_LEAST:
            words = f"{admitted} were admitted in {windows} windows without the hub, of {case.limit.capacity} in each"
            yield Violation(STANDSTILL, words)


def waited(case: Case, begin_ns: int, end_ns: int) -> list[Decide]:
    """Returns the requests of a time that waited."""
    return [one for one in case.decisions if one.waited and begin_ns <= one.t_ns < end_ns]


def _ms(ns: int) -> int:
    return round(ns / MILLISECOND_NS)
