"""Examines a hub of any kind from outside, and judges its round trip by the agents' settings."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from reconverge.clock import MILLISECOND_NS, SECOND_NS, Clock
from reconverge.errors import HubUnavailable
from reconverge.hub.checking.probe import try_exchanges
from reconverge.hub.clock import HubClock
from reconverge.hub.diagnosis import Diagnosable, Diagnosis, Finding, Level, Trip
from reconverge.hub.port import Hub

CHECKUP_S_MAX: Final = 60.0
"""The longest duration of a checkup: a working hub needs less than half of it, and a hub that hangs must not hang
the command."""
CLOCK_ERROR_NS_MAX: Final = 50 * MILLISECOND_NS
"""The largest tolerable error in the estimate of the hub's clock: a twentieth of a window of one second."""
CLOCK_OFFSET_NS_MAX: Final = SECOND_NS
TIMEOUT_TRIPS: Final = 4
"""The round trips that an exchange_timeout should allow: time to connect, and to be late once."""


@dataclass(frozen=True, slots=True)
class CheckupIntervals:
    """The sync interval of agents, and the time for which they wait for an answer."""

    sync_interval_s: float
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Checkup:
    """The findings about a hub, with its round trip and the offset of its clock."""

    findings: Sequence[Finding]
    round_trip_ms: float | None = None
    """The median round trip; of exchanges, or of pings if there was no exchange."""
    clock_offset_ms: float | None = None
    """The time, in milliseconds, by which the hub's clock is ahead of this machine's; negative if it is behind."""

    @property
    def ok(self) -> bool:
        """Whether no finding about the hub is a problem; some may be warnings."""
        return not self.count(Level.PROBLEM)

    def count(self, level: Level) -> int:
        """Returns how many of the findings about the hub have the level `level`."""
        return sum(finding.level is level for finding in self.findings)


async def check_up(hub: Hub, pace: CheckupIntervals, clock: Clock) -> Checkup:
    """Examines a hub, and returns the findings.

    A hub without the method `diagnose` is tried by exchanges, so open it in a namespace that no agent uses.
    """
    deadline = asyncio.timeout(CHECKUP_S_MAX)
    try:
        async with deadline:
            diagnosis = await (hub.diagnose() if isinstance(hub, Diagnosable) else _exchange(hub, clock))
    except Exception as error:  # noqa: BLE001  # nothing should come through here; if it does, it is a finding too
        if deadline.expired():
            fact = f"did not come to an end within {CHECKUP_S_MAX:g} s"
            return Checkup([Finding("exchange", Level.PROBLEM, fact, "Look at the hub's own log and load.")])
        fact = f"the hub raised {type(error).__name__}, an error that no hub may raise"
        return Checkup([Finding("hub", Level.PROBLEM, fact, "This is a bug; report it to the authors of the hub.")])
    return _judge(diagnosis, pace, clock)


async def _exchange(hub: Hub, clock: Clock) -> Diagnosis:
    try:
        trips = await try_exchanges(hub.exchange, clock)
    except HubUnavailable as error:
        remedy = "This hub cannot say more about itself: look at its documentation and its server's log."
        return Diagnosis([Finding("exchange", Level.PROBLEM, f"failed ({error})", remedy)])
    fact = "works (tried in a scratch namespace; a few records stay there until the hub forgets them)"
    return Diagnosis([Finding("exchange", Level.OK, fact)], exchanges=trips)


def _judge(diagnosis: Diagnosis, pace: CheckupIntervals, clock: Clock) -> Checkup:
    trips = diagnosis.exchanges or diagnosis.pings
    if not trips:
        return Checkup(diagnosis.findings)
    hub_clock = HubClock()
    for trip in diagnosis.pings or diagnosis.exchanges:
        hub_clock.add(sent_ns=trip.sent_ns, received_ns=trip.received_ns, hub_us=trip.hub_us)
    now_ns = clock.monotonic_ns()
    offset_ns = hub_clock.offset_ns - (clock.wall_ns() - now_ns)
    findings = [
        *diagnosis.findings,
        judge_round_trip(diagnosis.pings, diagnosis.exchanges, pace),
        judge_clock(offset_ns, hub_clock.error_ns(now_ns)),
    ]
    round_trip_ns = median(trip.took_ns for trip in trips)
    return Checkup(findings, round(round_trip_ns / MILLISECOND_NS, 3), round(offset_ns / MILLISECOND_NS, 3))


def judge_round_trip(pings: Sequence[Trip], exchanges: Sequence[Trip], pace: CheckupIntervals) -> Finding:
    """Returns a finding on whether the hub answers fast enough for the agents' sync interval and timeout."""
    spans = (("exchange", [trip.took_ns for trip in exchanges]), ("ping", [trip.took_ns for trip in pings]))
    fact = ", ".join(f"{what} {_ms(median(took))} ms (worst {_ms(max(took))})" for what, took in spans if took)
    took = [trip.took_ns for trip in exchanges or pings]
    usual_s, worst_s = median(took) / SECOND_NS, max(took) / SECOND_NS
    if 2 * usual_s > pace.timeout_s:
        fact += f"; that is too long for an exchange_timeout of {pace.timeout_s:g} s"
        return Finding("round trip", Level.PROBLEM, fact, f"Put the hub nearer, or {_longer_than(worst_s)}.")
    if usual_s > pace.sync_interval_s / 2:
        fact += f"; that is long for a sync_interval of {pace.sync_interval_s:g} s"
        interval_s = _rounded_up(2 * usual_s)
        remedy = (
            f"Put the hub nearer, or set sync_interval={interval_s:g} or more: agents cannot exchange faster than the "
            "hub answers. Limits hold all the same, only shares move more slowly."
        )
        return Finding("round trip", Level.WARNING, fact, remedy)
    if 2 * worst_s > pace.timeout_s:
        fact += f"; the worst is long for an exchange_timeout of {pace.timeout_s:g} s"
        return Finding("round trip", Level.WARNING, fact, f"Find out what delays it, or {_longer_than(worst_s)}.")
    return Finding("round trip", Level.OK, fact)


def judge_clock(offset_ns: int, error_ns: int) -> Finding:
    """Returns a finding on whether the hub's clock, which all windows follow, is known precisely enough."""
    apart = f"{_span(abs(offset_ns))} {'ahead of' if offset_ns > 0 else 'behind'} this machine's"
    fact = f"the hub's is {apart}, known to within {_span(error_ns)}"
    if abs(offset_ns) <= error_ns:
        fact = f"the hub's and this machine's agree to within {_span(abs(offset_ns) + error_ns)}"
    if error_ns > CLOCK_ERROR_NS_MAX:
        least = _rounded_up(error_ns / CLOCK_ERROR_NS_MAX)
        remedy = f"Put the hub nearer, or use no windows shorter than {least:g} s: their edges would be blurred."
        return Finding("clock", Level.WARNING, fact, remedy)
    if abs(offset_ns) > CLOCK_OFFSET_NS_MAX:
        remedy = (
            "Limits hold all the same, because windows follow the hub's clock alone; but logs of the two machines "
            "will not match. Have both set their clocks by NTP (chronyc tracking, timedatectl)."
        )
        return Finding("clock", Level.WARNING, fact, remedy)
    if abs(offset_ns) > error_ns:
        fact += "; harmless, as windows follow the hub's"
    return Finding("clock", Level.OK, fact)


def _longer_than(worst_s: float) -> str:
    return f"set exchange_timeout={_rounded_up(TIMEOUT_TRIPS * worst_s):g} or more in the agents"


def _span(nanoseconds: float) -> str:
    return f"{_ms(nanoseconds)} ms" if nanoseconds < SECOND_NS else f"{nanoseconds / SECOND_NS:,.1f} s"


def _ms(nanoseconds: float) -> str:
    milliseconds = nanoseconds / MILLISECOND_NS
    return f"{milliseconds:.2g}" if milliseconds < 99.5 else f"{milliseconds:.0f}"


def _rounded_up(seconds: float) -> float:
    """Returns `seconds` rounded up to one significant digit."""
    digit = 10.0 ** math.floor(math.log10(seconds))
    return round(math.ceil(seconds / digit) * digit, 9)
