"""Judges the answers of a run: goodput by stream, the rejected share over time, and whether that settles."""

# The rejected share is taken over slices of two seconds. Its final value is the mean of the last ten seconds of a
# phase. Around it lies a band of five points. The share has settled if it is inside from ten seconds after a change on,
# and it crosses the final value each time that it goes from beyond the band on one side to beyond it on the other:
# inside the band a share of finitely many requests is on either side by chance.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from bench.shedding.cases import TIMEOUT_S, Timeline
from bench.shedding.load import Answer

OK: Final = 200
UNAVAILABLE: Final = 503
SLICE_S: Final = 2.0
BAND: Final = 0.05
SETTLES_S: Final = 10.0
FINAL_S: Final = 10.0
GOODPUT_MIN: Final = 0.994
"""Netflix's published goodput for requests of users."""
CROSSINGS_MAX: Final = 2

Shares = list[tuple[float, float]]
"""The beginning of each slice, in seconds, and the share."""


def goodput(answers: Sequence[Answer], since_s: float, until_s: float, *, user: bool) -> float:
    """Returns the fraction of a stream's requests that were answered in time; 1 if there were none."""
    asked = [each for each in answers if each.user == user and since_s <= each.due_s < until_s]
    good = [each for each in asked if each.status == OK and each.took_s <= TIMEOUT_S]
    return len(good) / len(asked) if asked else 1.0


def goodputs(answers: Sequence[Answer], ends_s: float, *, user: bool) -> Shares:
    """Returns the goodput of a stream in each slice."""
    starts = [at * SLICE_S for at in range(int(ends_s / SLICE_S))]
    return [(start, goodput(answers, start, start + SLICE_S, user=user)) for start in starts]


def rejected_shares(answers: Sequence[Answer], ends_s: float) -> Shares:
    """Returns the rejected share of all requests that were due in each slice."""
    asked = [0] * int(ends_s / SLICE_S)
    gone = [0] * len(asked)
    for each in answers:
        at = int(each.due_s / SLICE_S)
        if at < len(asked):
            asked[at] += 1
            gone[at] += each.status == UNAVAILABLE
    parts = [lost / whole if whole else 0.0 for whole, lost in zip(asked, gone, strict=True)]
    return [(at * SLICE_S, part) for at, part in enumerate(parts)]


@dataclass(frozen=True, slots=True)
class Settling:
    """The behaviour of a share after a change: its final value, distance from it, and crossings."""

    final: float
    off: float
    crossings: int

    @property
    def settles(self) -> bool:
        """Returns whether the share settles as it should."""
        return self.off <= BAND and self.crossings <= CROSSINGS_MAX


def settling(shares: Shares, since_s: float, until_s: float) -> Settling:
    """Returns the behaviour of the share from a change until the next one, or until the end."""
    inside = [(at, share) for at, share in shares if since_s <= at and at + SLICE_S <= until_s]
    last = [share for at, share in inside if at >= until_s - FINAL_S]
    final = sum(last) / len(last) if last else 0.0
    off = [(at, share - final) for at, share in inside]
    sides = [each > 0 for _, each in off if abs(each) > BAND]
    late = [abs(each) for at, each in off if at >= since_s + SETTLES_S]
    return Settling(final, max(late, default=0.0), sum(one != other for one, other in pairwise(sides)))


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one run."""

    users: float
    """The goodput of users over the whole run."""
    users_in_trouble: float
    prefetch_in_trouble: float
    trouble: Settling
    after: Settling

    @property
    def failings(self) -> list[str]:
        """Returns a sentence for each failing."""
        found = []
        if self.users < GOODPUT_MIN:
            found.append(f"{self.users:.2%} of the users' requests were served in time, less than {GOODPUT_MIN:.1%}")
        for when, phase in (("in trouble", self.trouble), ("after it", self.after)):
            if phase.off > BAND:
                found.append(f"{when} the rejected share is {100 * phase.off:.1f} points off after {SETTLES_S:.0f} s")
            if phase.crossings > CROSSINGS_MAX:
                found.append(f"{when} the rejected share crosses its final value {phase.crossings} times")
        return found


def verdict_of(answers: Sequence[Answer], timeline: Timeline) -> Verdict:
    """Returns the verdict on these answers."""
    shares = rejected_shares(answers, timeline.ends_s)
    begins_s, ends_s = timeline.calm_s, timeline.trouble_ends_s
    return Verdict(
        users=goodput(answers, 0.0, timeline.ends_s, user=True),
        users_in_trouble=goodput(answers, begins_s, ends_s, user=True),
        prefetch_in_trouble=goodput(answers, begins_s, ends_s, user=False),
        trouble=settling(shares, begins_s, ends_s),
        after=settling(shares, ends_s, timeline.ends_s),
    )
