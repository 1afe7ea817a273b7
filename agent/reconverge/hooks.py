"""Hooks: the events that an agent reports to the application, and the objects that receive them.

Hooks do not run in requests. An agent that has hooks looks at its own counters every second, on a thread of its own,
and reports what has changed; so a hook may take its time, and an error that it raises reaches no decision.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, Protocol

from reconverge.clock import SECOND_NS, Clock, SystemClock
from reconverge.settings import check_seconds
from reconverge.stats import AgentStats, Health

logger = logging.getLogger("reconverge")

HASH_BYTES: Final = 6
"""The length of a key's hash in bytes: enough to tell keys apart in a log, and to recognise a known key."""
KEYS_LOGGED_MAX: Final = 10
LINES_MAX: Final = 1000
"""The most pairs (event, limit) for which `LogHooks` stores when it logged last. If there are more, it may log a pair
again within `every` seconds."""


@dataclass(frozen=True, slots=True)
class Refused:
    """An event: a limit has refused `count` requests since the agent last looked at its counters, a second ago.

    A limit in shadow admits them all; the event then counts the requests that it would have refused.
    """

    limit: str
    count: int
    keys: tuple[str, ...] = ()
    """Some of the refused keys, as far as they were reported to a hub. Keys may be personal data of users."""


@dataclass(frozen=True, slots=True)
class NearLimit:
    """An event: since the agent's last look at its counters, `count` keys of a limit have reached 80 % of their quota.

    The use of all nodes together counts, as far as the hub has reported it to this node.
    """

    limit: str
    count: int
    keys: tuple[str, ...] = ()
    """Some of these keys. Keys may be personal data of users."""


@dataclass(frozen=True, slots=True)
class HealthChanged:
    """An event: the agent's health has changed from the state `before` to `state`.

    `reconverge.Health` lists the states.
    """

    state: str
    before: str
    grounds: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ExchangeFailed:
    """An event: `count` exchanges with the hub have failed since the agent's last look at its counters."""

    kind: str
    """The class of the failure, such as "timeout" or "refused"."""
    count: int


@dataclass(frozen=True, slots=True)
class SettingsChanged:
    """An event: the published settings that this node applies (`reconverge.published.settings`) have changed."""

    version: int
    """The version of the published settings now in force; 0 if the agent follows its own settings again."""
    before: int
    capped: tuple[str, ...]
    """The names of limits for which a value above the node's cap was published, so that the cap is in force."""
    unfit: tuple[str, ...]
    """Names of other published settings that this node cannot follow; `agent.stats().orders` gives the reason."""


@dataclass(frozen=True, slots=True)
class SettingsRejected:
    """An event: since the agent's last look at its counters, this node has refused to apply published settings."""

    reason: str
    """Why the node rejected the published settings: one of `reconverge.published.envelope.REASONS`, or "unfit"."""
    count: int


@dataclass(frozen=True, slots=True)
class Look:
    """An event: the agent has looked at its counters.

    It carries the agent's state, whether or not anything has changed.
    """

    stats: AgentStats
    health: Health
    durations: tuple[float, ...]
    """The durations in seconds of the exchanges that the hub has answered since the last look; at most the newest
    thousand."""


class Hooks(Protocol):
    """The interface of an object that receives the events of an agent.

    Inherit `SilentHooks` to define only some methods.

    The agent calls the methods on a thread of its own, one event after the other. If a method raises an error, the
    agent counts it, and logs it the first time.
    """

    def refused(self, event: Refused, /) -> None:
        """Called when a limit has refused requests."""
        ...

    def would_have_refused(self, event: Refused, /) -> None:
        """Called when a limit in shadow has admitted requests that it would have refused if it were on."""
        ...

    def near_limit(self, event: NearLimit, /) -> None:
        """Called when keys of a limit have reached 80 % of their quota."""
        ...

    def degraded(self, event: HealthChanged, /) -> None:
        """Called when the agent's health has become worse."""
        ...

    def recovered(self, event: HealthChanged, /) -> None:
        """Called when the agent's health has become better."""
        ...

    def exchange_failed(self, event: ExchangeFailed, /) -> None:
        """Called when exchanges with the hub have failed."""
        ...

    def settings_changed(self, event: SettingsChanged, /) -> None:
        """Called when the published settings that this node applies have changed."""
        ...

    def settings_rejected(self, event: SettingsRejected, /) -> None:
        """Called when this node has refused to apply published settings."""
        ...

    def looked(self, event: Look, /) -> None:
        """Called every second, when the agent has looked at its counters and has reported all other events."""
        ...


class SilentHooks(Hooks):
    """Hooks whose methods do nothing; a subclass overrides some of them."""

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


EVERY_MAX_S: Final = 86_400.0


class LogHooks(SilentHooks):
    """Hooks that log events, at most one of each kind and limit in `every` seconds, with the event's fields as `extra`.

    Keys may be personal data: the log shows them hashed by `key_hash`, and in clear only if `show_keys` is True.

    Args:
        log: the logger to write to; by default the logger "reconverge".
        every: the least time in seconds between two lines about the same kind of event and the same limit.
        show_keys: log the keys themselves, without hashing them.
        secret: the secret with which `key_hash` hashes keys, so that a reader of the log cannot try out guessed keys.
        clock: the clock that measures `every`; by default the machine's.
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
        check_seconds("every", every, 0.0, EVERY_MAX_S)
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
            self._log.warning(
                "reconverge: exchanges with the hub failed with %s; number: %d", event.kind, event.count, extra=extra
            )

    def settings_changed(self, event: SettingsChanged, /) -> None:
        if self._may_write("settings_changed", str(event.version)):
            extra = {"event": "settings_changed", "version": event.version, "before": event.before}
            kept = ", ".join((*event.capped, *event.unfit))
            source = f"version {event.version}" if event.version else "this node's own"
            self._log.info(
                "reconverge: settings in force: %s; published settings not followed: %s",
                source,
                kept or "none",
                extra=extra,
            )

    def settings_rejected(self, event: SettingsRejected, /) -> None:
        if self._may_write("settings_rejected", event.reason):
            extra = {"event": "settings_rejected", "reason": event.reason, "count": event.count}
            self._log.warning(
                "reconverge: published settings rejected as %s; number: %d", event.reason, event.count, extra=extra
            )

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
    """Returns a key's hash for logs: twelve hexadecimal digits, always the same for the same key and secret.

    Without a secret, a reader of a log can recognise a known or guessed key. With a secret (at most 64 bytes of it
    count), only a reader with the secret can.
    """
    return blake2b(key.encode(errors="surrogatepass"), digest_size=HASH_BYTES, key=secret[:64]).hexdigest()
