"""Expectations of particular scenarios, besides the invariants."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from math import ceil, inf
from typing import Final

from chaos.judge.case import Case, Expectation, Violation
from chaos.judge.checker import LOST, first_answer_ns, forgetting
from chaos.judge.history import OK, Life, Part
from reconverge.clock import MILLISECOND_NS, SECOND_NS
from reconverge.runtime.backoff import BACKOFF_CAP_NS

UNNOTICED: Final = "unnoticed"
UNFLAGGED: Final = "unflagged"
BURST: Final = "burst"
BLOCKED: Final = "blocked"
UNREPORTED: Final = "unreported"
CROWDING: Final = "crowding"
HELD_UP: Final = "held up"
MOVED: Final = "moved"
OUTDATED: Final = "outdated"
FORGOTTEN: Final = "forgotten"
LEAKED: Final = "leaked"
NAMELESS: Final = "nameless"

BACKOFF_SHARE_MIN: Final = 0.75
"""The least part of a back-off that is waited: it is shortened by up to a quarter, so that nodes do not act in step."""
RAMP_ATTEMPTS: Final = 6
"""The number of attempts at 1, 2, 4, 8 intervals and so on, before those at the longest back-off."""
CROWD_NS: Final = 100 * MILLISECOND_NS
CROWD_SHARE: Final = 0.5
STALE_SHARE: Final = 0.5
FAILED_SHARE: Final = 0.05


def notices(case: Case) -> Iterator[Violation]:
    """Checks that every node notices during a fault that it is cut off, before the operating system gives up."""
    for life in case.survivors:
        if not any(one.outcome != OK and one.heard_ns and case.in_spell(one.heard_ns) for one in life.exchanges):
            yield Violation(UNNOTICED, f"node {life.node} had no exchange that failed while it was cut off")


def flags_staleness(case: Case) -> Iterator[Violation]:
    """Checks that a node reports during a fault how old its knowledge is.

    It is as old as the longest time without an answer, or as the fault if that is shorter.
    """
    longest_ns = max(end_ns - begin_ns for begin_ns, end_ns in case.spells)
    longest_ns = min(longest_ns, max((_unanswered_ns(case, life) for life in case.lives), default=longest_ns))
    most_s = max(
        (view.staleness_s for life in case.lives for view in life.views if case.start_ns <= view.t_ns), default=0.0
    )
    if most_s * SECOND_NS < STALE_SHARE * longest_ns:
        yield Violation(UNFLAGGED, f"nobody said that anything was older than {most_s:.2f} s")


def _unanswered_ns(case: Case, life: Life) -> int:
    """Returns the longest time in which a node got no answer, from one answer to the next."""
    answers_ns = sorted(one.heard_ns for one in life.exchanges if one.outcome == OK and one.heard_ns)
    moments_ns = [case.start_ns, *(moment_ns for moment_ns in answers_ns if moment_ns > case.start_ns), case.end_ns]
    return max(after_ns - before_ns for before_ns, after_ns in pairwise(moments_ns))


def admits_all_the_time(case: Case) -> Iterator[Violation]:
    """Checks that no node refuses everything for longer than a window."""
    window_ns = case.limit.window_ns
    admitted = Counter(one.t_ns // window_ns for one in case.decisions if one.allowed)
    first, last = case.start_ns // window_ns + 1, case.load_end_ns // window_ns
    for window in range(first, last - 1):
        if not admitted[window] and not admitted[window + 1]:
            seconds = (window * window_ns - case.start_ns) / SECOND_NS
            yield Violation(BLOCKED, f"nothing was admitted for two windows, from {seconds:.1f} s on")
            return


def tells_kinds(*kinds: str) -> Expectation:
    """Checks that each kind of failure is counted under its own name."""

    def expectation(case: Case) -> Iterator[Violation]:
        seen = {one.kind for one in case.exchanges}
        missing = [kind for kind in kinds if kind not in seen]
        if missing:
            yield Violation(
                UNREPORTED, f"no failure was counted as {', '.join(missing)}; there were {sorted(seen - {''})}"
            )

    return expectation


def does_not_catch_up(case: Case) -> Iterator[Violation]:
    """Checks that a delayed node goes on at its pace ahead of time at most, without catching up on exchanges."""
    most = ceil(case.interval_ns / case.interval_min_ns) + 1
    for life in case.lives:
        sent = [one.sent_ns for one in life.exchanges]
        for t_ns in (t_ns for t_ns, what in life.ordered if what.endswith(" over")):
            after = bisect_left(sent, t_ns + case.interval_ns) - bisect_left(sent, t_ns)
            if after > most:
                yield Violation(BURST, f"node {life.node} exchanged {after} times in an interval; {most} are allowed")


def does_not_crowd(case: Case) -> Iterator[Violation]:
    """Checks that nodes that are all cut off try about once in a back-off each, and not in step with the others."""
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
    """Checks that nodes do not all return at the same moment when the server is there again."""
    first: dict[str, int] = {}
    for one in case.exchanges:
        if one.sent_ns >= case.healed_ns:
            first.setdefault(one.account, one.sent_ns)
    moments = sorted(first.values())
    most = max((bisect_left(moments, t_ns + CROWD_NS) - number for number, t_ns in enumerate(moments)), default=0)
    if most > CROWD_SHARE * len(moments):
        yield Violation(CROWDING, f"{most} of {len(moments)} came back within {CROWD_NS / SECOND_NS:g} s")


def leaks_nothing(case: Case) -> Iterator[Violation]:
    """Checks that after many loops there are no more threads and descriptors than after the first."""
    for life in case.survivors:
        facts = life.facts or {}
        if any(facts["after"][name] > count for name, count in facts["before"].items()):
            yield Violation(LEAKED, f"{facts['before']} have become {facts['after']}")


def holds_up_no_other(case: Case) -> Iterator[Violation]:
    """Checks that during a fault in a part of the hub, knowledge of other parts is no older than two intervals.

    The delays of processes by the machine are added.
    """
    most_s = (2 * case.interval_ns + case.late_ns(after_ns=case.start_ns)) / SECOND_NS
    if not case.parts:
        yield Violation(HELD_UP, "nothing was wrong with a part of the hub")
    for part in case.parts:
        oldest_s = max(ages_of_others_s(case, part), default=inf)
        if oldest_s > most_s:
            words = f"{part.name}, and of another shard nothing newer was known than {oldest_s:.2f} s ago"
            yield Violation(HELD_UP, f"{words}, where {most_s:.2f} s are allowed")


def ages_of_others_s(case: Case, part: Part) -> Iterator[float]:
    """Returns the ages of nodes' knowledge of the healthy shards, at each look."""
    for life in case.lives:
        for look in life.ages:
            if part.begin_ns <= look.t_ns < part.end_ns:
                yield from (age_s for shard, age_s in enumerate(look.by_shard) if shard not in part.shards)


def is_up_to_date(case: Case) -> Iterator[Violation]:
    """Checks that knowledge is no older than two intervals and a failed exchange while all is well under load."""
    most_s = (2 * case.interval_ns + case.timeout_ns + case.late_ns(after_ns=case.start_ns)) / SECOND_NS
    bad = [(begin_ns, end_ns + case.reconverges_in_ns) for begin_ns, end_ns in case.spells]
    for life in case.lives:
        for view in life.views:
            good = case.start_ns <= view.t_ns < case.load_end_ns and not any(a <= view.t_ns < b for a, b in bad)
            if good and view.staleness_s > most_s:
                words = f"while all was well node {life.node} knew nothing newer than {view.staleness_s:.2f} s ago"
                yield Violation(OUTDATED, f"{words}, where {most_s:.2f} s are allowed")
                return


def is_made_up_for_by_one_report(least: int) -> Expectation:
    """Checks that a failover lost enough exchanges, and that the hub knows of all after each node's next exchange."""

    def expectation(case: Case) -> Iterator[Violation]:
        first_ns, last_ns = case.spells[0][0], case.spells[-1][0]
        missed = sum(one.outcome == OK and first_ns <= one.sent_ns < last_ns for one in case.exchanges)
        if missed < least:
            yield Violation(UNREPORTED, f"the replica had missed {missed} exchanges, and was to miss {least}")
        answered_ns = [first_answer_ns(life, case.healed_ns) for life in case.survivors]
        if None in answered_ns or not answered_ns:
            yield Violation(LOST, "after the failover not all nodes have exchanged")
            return
        since_ns = max(moment for moment in answered_ns if moment is not None)
        yield from forgetting(replace(case, loses_data=False), since_ns=since_ns)

    return expectation


def rejects_what_makes_no_sense(case: Case) -> Iterator[Violation]:
    """Checks that each senseless message is counted by its receiver, and changes nothing else."""
    facts = [life.facts or {} for life in case.lives]
    rejected = sum(sum(each.get("rejects", {}).values()) for each in facts) + case.noted.get("rejected by observer", 0)
    expected = case.noted.get("to be rejected", 0)
    if not 0 < expected <= rejected:
        yield Violation(UNREPORTED, f"{rejected} messages were counted as of no use, and {expected} were")
    changed = sum(each.get("rebirths", 0) for each in facts)
    kinds = Counter(one.kind for one in case.exchanges if case.in_spell(one.sent_ns))
    failed = kinds.total() - kinds[""]
    # On a busy machine an answer may come too late, even without poison.
    if changed or failed > FAILED_SHARE * kinds.total():
        yield Violation(MOVED, f"data were new to {changed} nodes, and {failed} exchanges failed: {dict(kinds)}")


def keeps_settings(case: Case) -> Iterator[Violation]:
    """Checks that every node applied the published settings from then on, without a return or another publication."""
    for life in case.survivors:
        facts = life.facts or {}
        known = facts.get("obeyed", 0), facts.get("accepted", 0)
        if known != (case.noted.get("published"), 1):
            yield Violation(FORGOTTEN, f"node {life.node} obeys version {known[0]}, after {known[1]} changes")


def has_names(least: int) -> Expectation:
    """Checks that every process with admissions had a name of its own, and that there were enough of them."""

    def expectation(case: Case) -> Iterator[Violation]:
        by_process = {life.pid: {one.account for one in life.exchanges} for life in case.lives if life.admitted}
        names = [name for names in by_process.values() for name in names]
        if len(by_process) < least or len(names) != len(set(names)) or not all(by_process.values()):
            yield Violation(NAMELESS, f"{len(by_process)} processes exchanged under {len(set(names))} names")

    return expectation


def counts_overflow(case: Case) -> Iterator[Violation]:
    """Checks that requests for keys beyond the cap are counted together, and reported so."""
    if not any((life.facts or {}).get("overflowed") for life in case.survivors):
        yield Violation(UNREPORTED, "nobody says anything of keys beyond the cap")
