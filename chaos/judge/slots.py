"""Judges limits on work in progress, from the moments at which slots were taken and released."""

# Theory of operation.
#
# A node's lease lasts from when it sent the last batch that was answered. A hub counts it from when it took that batch,
# so it gives nothing away before the node's own lease is over, by any clock. So the judge needs neither the node's
# report of its lease nor the hub's data: the recorded exchanges show when a lease was over, and until which answer.
#
#     answers   sent ---- heard                        sent ---- heard
#     lease     |............................|(lapse)...........|.....
#     a slot             taken ------------- apart ---------------- given
#
# A slot that is in use when its node's lease ends counts apart from then on until it is given back, also when the node
# has another lease by then: the hub may have granted it to others meanwhile, and gets it reported again as a debt.

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Any, Final

from chaos.judge.case import Case, Violation
from chaos.judge.history import OK, ONLY, Held, Lease, Life
from reconverge.clock import NEVER_NS, SECOND_NS

IN_PROGRESS: Final = "in progress"
PAST_LEASE: Final = "past lease"
LEFT_IN_USE: Final = "left in use"
KEPT: Final = "kept"

Span = tuple[int, int]


def slot_violations(case: Case) -> list[Violation]:
    """Yields all violations of slots."""
    return [*too_many(case), *begun_past_leases(case), *left_in_use(case)] if case.slots else []


def too_many(case: Case) -> Iterator[Violation]:
    """Checks that on valid leases, no more is in progress than the limit."""
    most, moment_ns = _most(case)
    allowed = case.slots + case.slots_beyond
    if most > allowed:
        moment_s = (moment_ns - case.start_ns) / SECOND_NS
        yield Violation(
            IN_PROGRESS,
            f"at {moment_s:.2f} s {most} were in progress on leases that held, and {allowed} are allowed",
        )


def begun_past_leases(case: Case) -> Iterator[Violation]:
    """Checks that a node whose lease is over begins no work."""
    late = [
        (held.taken_ns, life.node)
        for life in case.lives
        for held, spans in _with_lapses(case, life)
        for begin_ns, end_ns in spans
        if begin_ns <= held.asked_ns and held.taken_ns < end_ns
    ]
    if late:
        taken_ns, node = min(late)
        moment_s = (taken_ns - case.start_ns) / SECOND_NS
        yield Violation(
            PAST_LEASE, f"at {moment_s:.2f} s node {node} began something on a lease that was over, as {len(late)} did"
        )


def left_in_use(case: Case) -> Iterator[Violation]:
    """Checks that no slot is in use when no work is in progress any more."""
    for life in case.survivors:
        left = (life.facts or {}).get("slots_in_use", 0)
        if left:
            yield Violation(
                LEFT_IN_USE, f"in the end node {life.node} had {left} slots in use, and nothing in progress"
            )


def come_back_from_the_killed(case: Case) -> Iterator[Violation]:
    """Checks that within a lease and one exchange of a node's death, the others have all slots in use.

    The delays of processes by the machine are added.
    """
    levels = list(_levels(case))
    for life in case.lives:
        if life.facts is not None:
            continue
        until_ns = life.last_ns + case.slots_lease_ns + case.interval_ns + case.timeout_ns
        until_ns += 2 * case.late_ns(after_ns=life.last_ns)
        most = max((level for moment_ns, level in levels if life.last_ns < moment_ns <= until_ns), default=0)
        if most < case.slots:
            moment_s = (life.last_ns - case.start_ns) / SECOND_NS
            words = f"after node {life.node} was killed at {moment_s:.2f} s, {most} of {case.slots} slots were used"
            yield Violation(KEPT, f"{words} within its lease")


def slot_figures(case: Case) -> dict[str, Any]:
    """Returns the figures on work in progress."""
    if not any(life.slots for life in case.lives):
        return {}
    apart = [
        (life, held)
        for life in case.lives
        for held, spans in _with_lapses(case, life)
        if _covered(life, held, spans)[1] < _end_ns(life, held)
    ]
    return {
        "at_once_max": case.slots,
        "taken": sum(len(life.slots) for life in case.lives),
        "at_once": _most(case)[0],
        "outlived_lease": len(apart),
    }


def lapses(life: Life, lease_ns: int, lease: Lease = ONLY) -> list[Span]:
    """Returns the times in which a process did not have that lease, after it was first given."""
    spans: list[Span] = []
    until_ns: int | None = None
    answers = [one for one in life.exchanges if one.outcome == OK and one.heard_ns and one.lease == lease]
    for heard_ns, sent_ns in sorted((one.heard_ns or 0, one.sent_ns) for one in answers):
        if until_ns is not None and heard_ns > until_ns:
            spans.append((until_ns, heard_ns))
        until_ns = max(until_ns or 0, sent_ns + lease_ns)
    return spans if until_ns is None else [*spans, (until_ns, NEVER_NS)]


def _with_lapses(case: Case, life: Life) -> list[tuple[Held, list[Span]]]:
    """Yields the slots that a process took, each with the end of the lease on which it was taken."""
    leases = {held.lease for held in life.slots}
    spans = {lease: lapses(life, case.slots_lease_ns, lease) for lease in leases}
    return [(held, spans[held.lease]) for held in life.slots]


def _covered(life: Life, held: Held, spans: list[Span]) -> Span:
    """Returns the time for which a slot was in use on a valid lease; empty if it was taken without one."""
    end_ns = _end_ns(life, held)
    for begin_ns, over_ns in spans:
        if held.taken_ns < over_ns and begin_ns < end_ns:
            return held.taken_ns, max(held.taken_ns, begin_ns)
    return held.taken_ns, end_ns


def _end_ns(life: Life, held: Held) -> int:
    """Returns the end of a slot: a process's work ends with it, and its last line came before that."""
    return held.given_ns if held.given_ns is not None else max(held.taken_ns, life.last_ns)


def _levels(case: Case) -> Iterator[tuple[int, int]]:
    """Returns the work in progress on valid leases, from each moment at which it changed."""
    changes: list[tuple[int, int]] = []
    for life in case.lives:
        for held, spans in _with_lapses(case, life):
            begin_ns, end_ns = _covered(life, held, spans)
            if begin_ns < end_ns:
                changes += [(begin_ns, 1), (end_ns, -1)]
    changes.sort()  # at one moment, ends come before beginnings
    levels = accumulate(change for _, change in changes)
    return zip((moment_ns for moment_ns, _ in changes), levels, strict=True)


def _most(case: Case) -> tuple[int, int]:
    """Returns the most work in progress on valid leases, and its moment."""
    return max(((level, moment_ns) for moment_ns, level in _levels(case)), default=(0, case.start_ns))
