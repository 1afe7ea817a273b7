"""Hooks: the events that an agent sends, and the objects that receive them.

Nothing of this happens in a request. An agent that has hooks looks at its own counters now and then, on a thread of its
own, and sends events about the changes; so a hook may take its time, and an error that it raises reaches no decision.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, Protocol

from reconverge.clock import SECOND_NS, Clock, SystemClock
from reconverge.stats import AgentStats, Health

logger = logging.getLogger("reconverge")

HASH_BYTES: Final = 6
"""Enough to distinguish keys in a log, and to look one up that is known."""
KEYS_LOGGED_MAX: Final = 10
LINES_MAX: Final = 1000
"""So many kinds of lines are remembered to have been logged; beyond that they may come more often than `every`."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Requests were refused, or would have been, since the last look."""

    limit: str
    count: int
    keys: tuple[str, ...] = ()
    """Some of the keys, as far as they have been reported to a hub; they are the users' data."""


@dataclass(frozen=True, slots=True)
class NearLimit:
    """Keys came near to the end of their quota since the last look: all nodes together have used 80 % of it."""

    limit: str
    count: int
    keys: tuple[str, ...] = ()
    """Some of them; they are the users' data."""


@dataclass(frozen=True, slots=True)
class HealthChanged:
    """The agent's health is not what it was; see `reconverge.Health`."""

    state: str
    before: str
    grounds: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ExchangeFailed:
    """Exchanges failed since the last look."""

    kind: str
    """The class of the failure, such as "timeout" or "refused"."""
    count: int


@dataclass(frozen=True, slots=True)
class SettingsChanged:
    """Other published settings are in force than at the last look (`reconverge.published.settings`)."""

    version: int
    """0 if the agent has gone back to its own settings."""
    before: int
    capped: tuple[str, ...]
    """Limits that keep to their cap instead."""
    unfit: tuple[str, ...]
    """Other settings that this node cannot follow; `agent.stats().orders` states why."""


@dataclass(frozen=True, slots=True)
class SettingsRejected:
    """Settings were published since the last look that are not obeyed."""

    reason: str
    """One of `reconverge.published.envelope.REASONS`, or "unfit"."""
    count: int


@dataclass(frozen=True, slots=True)
class Look:
    """The agent's state at one look, whether or not anything had changed."""

    stats: AgentStats
    health: Health
    durations: tuple[float, ...]
    """How many seconds each exchange took that was answered since the last look; the newest thousand at most."""


class Hooks(Protocol):
    """Receives the events of an agent; inherit `SilentHooks` to define only the methods of interest.

    Called on a thread of the agent's own, one event after the other. What is raised is logged once, and counted.
    """

    def refused(self, event: Refused, /) -> None:
        """Requests were refused."""
        ...

    def would_have_refused(self, event: Refused, /) -> None:
        """Requests were admitted because their limit is in shadow."""
        ...

    def near_limit(self, event: NearLimit, /) -> None:
        """Keys have come near to the end of their quota."""
        ...

    def degraded(self, event: HealthChanged, /) -> None:
        """The agent decides worse than before."""
        ...

    def recovered(self, event: HealthChanged, /) -> None:
        """The agent decides better than before."""
        ...

    def exchange_failed(self, event: ExchangeFailed, /) -> None:
        """Exchanges with the hub have failed."""
        ...

    def settings_changed(self, event: SettingsChanged, /) -> None:
        """Other published settings are in force."""
        ...

    def settings_rejected(self, event: SettingsRejected, /) -> None:
        """Settings were published that are not obeyed."""
        ...

    def looked(self, event: Look, /) -> None:
        """The agent has looked at its counters, as it does every second; comes after all other events."""
        ...


class SilentHooks(Hooks):
    """Hooks that do nothing: override what is of interest."""

    def refused(self, event: Refused, /) -> None:
        """Does nothing."""

    def would_have_refused(self, event: Refused, /) -> None:
        """Does nothing."""

    def near_limit(self, event: NearLimit, /) -> None:
        """Does nothing."""

    def degraded(self, event: HealthChanged, /) -> None:
        """Does nothing."""

    def recovered(self, event: HealthChanged, /) -> None:
        """Does nothing."""

    def exchange_failed(self, event: ExchangeFailed, /) -> None:
        """Does nothing."""

    def settings_changed(self, event: SettingsChanged, /) -> None:
        """Does nothing."""

    def settings_rejected(self, event: SettingsRejected, /) -> None:
        """Does nothing."""

    def looked(self, event: Look, /) -> None:
        """Does nothing."""


class LogHooks(SilentHooks):
    """Logs each kind of event of each limit, at most once in `every` seconds, with its facts as `extra`.

    Keys are the users' data: they are shown as `key_hash` makes them, and in clear only with `show_keys`.

    Args:
        log: where to; by default the logger "reconverge".
        every: seconds between two lines that differ in nothing but numbers.
        show_keys: log keys as they are.
        secret: of hashes, so that a reader of the log cannot try out keys; see `key_hash`.
        clock: by which the seconds go.
    """

    def __init__(
        self,
        log: logging.Logger | None = None,
        *,
        every: float = 60.0,
        show_keys: bool = False,
        secret: bytes = b"",
        clock: Clock | None = None,
    ) -> None:
        self._log = log or logger
        self._every_ns = round(every * SECOND_NS)
        self._shown: Callable[[str], str] = str if show_keys else lambda key: key_hash(key, secret=secret)
        self._clock = clock or SystemClock()
        self._silent_until_ns: dict[tuple[str, str], int] = {}

    def refused(self, event: Refused, /) -> None:
        self._write(logging.INFO, "refused", event.limit, event.count, event.keys)

    def would_have_refused(self, event: Refused, /) -> None:
        self._write(logging.INFO, "would_have_refused", event.limit, event.count, event.keys)

    def near_limit(self, event: NearLimit, /) -> None:
        self._write(logging.INFO, "near_limit", event.limit, event.count, event.keys)

    def degraded(self, event: HealthChanged, /) -> None:
        self._write_health(logging.WARNING, "degraded", event)

    def recovered(self, event: HealthChanged, /) -> None:
        self._write_health(logging.INFO, "recovered", event)

    def exchange_failed(self, event: ExchangeFailed, /) -> None:
        if self._may_write("exchange_failed", event.kind):
            extra = {"event": "exchange_failed", "kind": event.kind, "count": event.count}
            self._log.warning("reconverge: exchanges failed with %s: %d", event.kind, event.count, extra=extra)

    def settings_changed(self, event: SettingsChanged, /) -> None:
        if self._may_write("settings_changed", str(event.version)):
            extra = {"event": "settings_changed", "version": event.version, "before": event.before}
            kept = ", ".join((*event.capped, *event.unfit))
            source = f"version {event.version}" if event.version else "this node's own"
            self._log.info(
                "reconverge: settings in force: %s; not as published: %s", source, kept or "none", extra=extra
            )

    def settings_rejected(self, event: SettingsRejected, /) -> None:
        if self._may_write("settings_rejected", event.reason):
            extra = {"event": "settings_rejected", "reason": event.reason, "count": event.count}
            self._log.warning("reconverge: settings rejected as %s: %d", event.reason, event.count, extra=extra)

    def _write(self, level: int, event: str, limit: str, count: int, keys: tuple[str, ...]) -> None:
        if not self._may_write(event, limit):
            return
        shown = [self._shown(key) for key in keys[:KEYS_LOGGED_MAX]]
        extra: dict[str, Any] = {"event": event, "limit": limit, "count": count, "keys": shown}
        self._log.log(level, "reconverge: limit %s: %s: %d", limit, event, count, extra=extra)

    def _write_health(self, level: int, event: str, change: HealthChanged) -> None:
        if self._may_write(event, change.state):
            extra = {"event": event, "state": change.state, "before": change.before, "grounds": change.grounds}
            grounds = "; ".join(change.grounds) or "the hub answers"
            self._log.log(level, "reconverge: %s, was %s: %s", change.state, change.before, grounds, extra=extra)

    def _may_write(self, event: str, about: str) -> bool:
        now_ns = self._clock.monotonic_ns()
        if now_ns < self._silent_until_ns.get((event, about), now_ns):
            return False
        if len(self._silent_until_ns) >= LINES_MAX:
            self._silent_until_ns.clear()
        self._silent_until_ns[event, about] = now_ns + self._every_ns
        return True


def key_hash(key: str, *, secret: bytes = b"") -> str:
    """A key as logs show it: twelve digits, always the same ones for the same key and secret.

    Without a secret, a reader of a log can find a known or guessed key. With a secret (at most 64 bytes of it count),
    only a reader with the secret can.
    """
    return blake2b(key.encode(errors="surrogatepass"), digest_size=HASH_BYTES, key=secret[:64]).hexdigest()
