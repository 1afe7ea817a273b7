"""Reading what is posted for the fleet, once in an interval: what of it is in force, and what was thrown away.

What is in force is applied by `Overrides` in the room `agent`. The exchange driver calls the reader after the
exchanges: nothing that goes wrong in here keeps one from happening.
"""

# Reading goes after the exchange and not within it: told with the answer of the exchange, settings would be a part of
# the schema, of every hub and of both twins of the merge rule, to save a command that costs 90 us where the barest one
# costs 79.
#
# A hub that has lost its data has lost the document, too, and a node that starts then would not know of it. So nodes
# that have it post it again, at random after 1 to 10 seconds and only if it is still gone. Only nothing, or something
# older, is replaced: what is forged, malformed or premature may be what a publisher with a new secret or a better clock
# has just posted, and nodes that do not know that secret yet would undo a rotation.

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from random import Random
from typing import Final, NamedTuple

from reconverge.clock import SECOND_NS, Clock
from reconverge.published.envelope import EXPIRED, OLD, PREMATURE, Rejection, Verifier
from reconverge.remote_settings.signed import FleetSettings
from reconverge.runtime.backoff import backoff_ns
from reconverge.runtime.log_throttle import LoggedOnce

logger = logging.getLogger("reconverge")

PROBLEM_LENGTH_MAX: Final = 400
RESTORED_AFTER_S: Final = (1.0, 10.0)
"""So long, at random, what is in force has to be gone before a node posts it again, so that not all of them do."""


class Lost(NamedTuple):
    """Settings that are in force, and not posted any more."""

    payload: bytes
    keep_s: float


@dataclass(frozen=True, slots=True)
class FleetSettingsStats:
    """What one node knows of the settings that are published for its fleet."""

    version: int = 0
    """Of what is in force; 0 if the node goes by its own settings."""
    expires_in: float = inf
    """Seconds until it goes back to these; infinite if it does."""
    accepted: int = 0
    """How often something new was accepted."""
    rejected: dict[str, int] = field(default_factory=dict[str, int])
    """How often something new was not, by reason; see `reconverge.published.envelope.REASONS`."""
    capped: tuple[str, ...] = ()
    """Names of limits that keep to their cap, and not to all that is in force."""
    unfit: dict[str, str] = field(default_factory=dict[str, str])
    """What this node cannot obey, and why: by the name of a limit, or "sync_interval"."""
    failures: dict[str, int] = field(default_factory=dict[str, int])
    """How often nothing could be read, or not be posted again, by class of failure."""
    restored: int = 0
    """How often this node has posted again what the hub had lost."""


class Reader:
    """Reads, for one node, the settings that are published at its hub.

    Does no I/O: it says when to read, and is told what was read.

    `interval_ns` says how often; `apply` is called with the settings in force from now on; None if there are none.
    """

    def __init__(
        self,
        verifier: Verifier[FleetSettings],
        clock: Clock,
        *,
        interval_ns: Callable[[], int],
        apply: Callable[[FleetSettings | None], None],
        random: Random | None = None,
    ) -> None:
        self._random = random or Random()
        self._verifier = verifier
        self._clock = clock
        self._interval_ns = interval_ns
        self._apply = apply
        self.in_force: FleetSettings | None = None
        self.accepted = 0
        self.rejected: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self._newest: FleetSettings | None = None
        """What was accepted last, and is in force until it expires."""
        self._known: bytes | None = None
        """As it was read."""
        self._seen: bytes | None = None
        """What was read last, whatever it was."""
        self._reason = ""
        """Why that was rejected; empty if it was not."""
        self._restore_ns: int | None = None
        """When to post again what is in force and lost, if that still is so."""
        self.restored = 0
        self._judged_by_clock = False
        """Whether that was rejected for what the clock said, which may be mended."""
        self._logged = LoggedOnce()
        self._failures_in_a_row = 0
        self.start_over()

    def start_over(self) -> None:
        """With another driver: have a look as soon as it drives."""
        self._next_ns = self._clock.monotonic_ns()
        self._read_ns = self._next_ns

    def due_ns(self) -> int:
        """When to look next."""
        return self._next_ns

    def begin(self, *, cut_off: bool) -> bool:
        """Forget what has expired, and return whether to read now; not while exchanges fail, which say why."""
        now_ns = self._clock.monotonic_ns()
        self._next_ns = now_ns + self._interval_ns()
        self._follow_the_clock()
        return not cut_off and now_ns >= self._read_ns

    def heard(self, payload: bytes | None) -> None:
        """Make of it what there is to be made. That nothing is posted any more changes nothing: a hub may forget."""
        if self._failures_in_a_row:
            self._failures_in_a_row = 0
            self._logged.forget(*self.failures)
        self._judge(payload)
        self._note_loss(payload)

    def _judge(self, payload: bytes | None) -> None:
        again, self._seen = payload == self._seen, payload
        if payload is None or payload == self._known:
            self._reason, self._judged_by_clock = "", False
            return
        if again and not self._judged_by_clock:
            return
        verdict = self._verifier.verify(
            payload,
            now_s=self._clock.wall_ns() / SECOND_NS,
            known=0 if self._newest is None else self._newest.version,
        )
        self._reason = verdict.reason if isinstance(verdict, Rejection) else ""
        self._judged_by_clock = self._reason in (PREMATURE, EXPIRED)
        if not isinstance(verdict, Rejection):
            self._known, self._newest = payload, verdict
            self._logged.forget_all()
            self.accepted += 1
            self._follow_the_clock()
        elif not again:
            self.rejected[verdict.reason] += 1
            sentence = f"settings were published that are not obeyed: they are {verdict.reason}: what was read"
            self._complain(verdict.reason, f"{sentence} {verdict.problem}")

    def _note_loss(self, payload: bytes | None) -> None:
        """What the hub has lost is posted again; so is what an older version has replaced, which no node applies.

        Anything else may come of a publisher that this node does not understand yet: with another secret, say.
        """
        if self.in_force is None or not (payload is None or self._reason == OLD):
            self._restore_ns = None
        elif self._restore_ns is None:
            self._restore_ns = self._clock.monotonic_ns() + round(self._random.uniform(*RESTORED_AFTER_S) * SECOND_NS)

    def restoration(self) -> Lost | None:
        """What to post again now, if anything; right after what is posted was heard."""
        if self._restore_ns is None or self.in_force is None or self._known is None:
            return None
        if self._clock.monotonic_ns() < self._restore_ns:
            return None
        self._restore_ns = None  # if it is still lost when it is read next, try again some time
        return Lost(self._known, self.in_force.expires - self._clock.wall_ns() / SECOND_NS)

    def restored_again(self) -> None:
        """That was posted."""
        self.restored += 1
        logger.warning("reconverge: published settings were not at the hub any more; they were posted again")

    def not_restored(self, kind: str) -> None:
        """That could not be posted."""
        self.failures[kind] += 1

    def _follow_the_clock(self) -> None:
        """Have the newest settings be obeyed exactly as long as they are valid, also by a clock that jumps."""
        newest, before = self._newest, self.in_force
        valid = newest is not None and newest.expires > self._clock.wall_ns() / SECOND_NS
        now = newest if valid else None
        if now is before:
            return
        self._apply(now)
        self.in_force = now  # last, so that a reader of it sees its effects
        if now is not None:
            logger.info("reconverge: published settings (version %d) are in force", now.version)
        elif before is not None:
            logger.warning(
                "reconverge: published settings (version %d) have expired; back to this node's own", before.version
            )

    def failed(self, kind: str) -> None:
        """Nothing could be read; wait for longer each time."""
        self.failures[kind] += 1
        self._failures_in_a_row += 1
        self._read_ns = self._clock.monotonic_ns() + backoff_ns(self._interval_ns(), self._failures_in_a_row)
        self._complain(kind, f"published settings cannot be read ({kind}); what is in force stays so")

    def stats(self) -> FleetSettingsStats:
        """A snapshot, without the fields that only the agent can fill in: what was overridden."""
        fleet_settings = self.in_force
        return FleetSettingsStats(
            version=0 if fleet_settings is None else fleet_settings.version,
            expires_in=inf if fleet_settings is None else fleet_settings.expires - self._clock.wall_ns() / SECOND_NS,
            accepted=self.accepted,
            rejected=dict(self.rejected),
            failures=dict(self.failures),
            restored=self.restored,
        )

    def _complain(self, kind: str, problem: str) -> None:
        """Log once for each kind, until something is accepted: an attacker with access to the hub could fill a log."""
        if self._logged.is_new(kind):
            visible = "".join(letter if letter.isprintable() else " " for letter in problem[:PROBLEM_LENGTH_MAX])
            logger.warning("reconverge: %s", visible, extra={"kind": kind})
