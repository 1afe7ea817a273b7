"""A cache for Django whose whole numbers are counts that all processes share; other values stay in one process.

  CACHES = {
    "default": {...},
    "ratelimit": {
      "BACKEND": "reconverge.integrations.django.cache.ReconvergeCache",
      "LOCATION": "redis://localhost:6379/0",
      "OPTIONS": {"sync_interval": 0.1},
    },
  }
  RATELIMIT_USE_CACHE = "ratelimit"

It is made for django-ratelimit, which calls `add` and `incr`. Neither call passes the limit, so the hub cannot grant
each node an allowance (a part of the limit); see `shared_counts`. While N processes cannot exchange their counts, each
process counts alone, and up to N times the limit may be admitted.
"""

from __future__ import annotations

import logging
from typing import Any, Final, TypeGuard

from reconverge.errors import InvalidSetting, MissingExtra
from reconverge.runtime.locks import new_lock
from reconverge.runtime.log_throttle import LoggedOnce

try:
    from django.core.cache.backends.base import DEFAULT_TIMEOUT
    from django.core.cache.backends.locmem import LocMemCache
except ModuleNotFoundError as error:
    raise MissingExtra(__name__, error.name or "django", "django") from None

from reconverge.integrations.dropin.shared_agent import SETTINGS, key_of
from reconverge.integrations.dropin.shared_counts import COUNT_MAX, SharedCounts

NAMESPACE: Final = "django"
IDLE: Final = frozenset(("policy", "max_overshoot", "cold_allowance", "scarce"))
"""Settings of an agent that concern limits."""
OF_DJANGO: Final = frozenset(("BACKEND", "LOCATION", "OPTIONS", "TIMEOUT", "KEY_PREFIX", "VERSION", "KEY_FUNCTION"))
LOCAL: Final = frozenset(("MAX_ENTRIES", "CULL_FREQUENCY"))
"""Options that every Django cache has; here they apply to the values that stay in this process."""

logger = logging.getLogger("reconverge")
_logged = LoggedOnce()
_counts: dict[tuple[str, tuple[tuple[str, object], ...]], SharedCounts] = {}
"""The counts, by location and settings. Django makes one cache object for each thread; these share the counts."""
_locks: dict[str, Any] = {}
"""The locks for the values that stay in this process, by location and settings as text, shared by all threads."""


class ReconvergeCache(LocMemCache):  # type: ignore[misc]  # pyright: ignore[reportUntypedBaseClass]  # Django has no types
    """A cache whose whole numbers from 0 to 10**12 are shared by processes with one LOCATION, namespace and KEY_PREFIX.

    A count expires when its timeout has passed since its first increment; each process uses the timeout of its own call
    of `add` or `set`. A process can read and increment a count only after such a call, even if its `add` returned
    False. All other values (text, objects, negative numbers) are stored as by `LocMemCache`, in this process only.

    LOCATION is a hub's URL. OPTIONS are settings of `reconverge.Agent`, in lower case, besides Django's own; the
    `namespace` is "django" by default. No call waits for the hub or fails because of it, so the asynchronous methods
    need no thread.

    Raises:
        InvalidSetting, UnknownHub, MissingExtra: see `shared_agent.settings_at`.
    """

    def __init__(self, location: str, params: dict[str, Any]) -> None:
        if not location or not isinstance(location, str):
            problem = (
                "is missing in CACHES; write the hub that processes share, as 'LOCATION': 'redis://localhost:6379/0'"
                if not location
                else "is not one URL; write that of the hub that processes share, as 'redis://localhost:6379/0'"
            )
            raise InvalidSetting("LOCATION", location, problem)
        options = {name: value for name, value in params.get("OPTIONS", {}).items() if name not in LOCAL}
        for name in IDLE.intersection(options):
            problem = "has no effect in this cache, which does not learn the limits; leave it out"
            raise InvalidSetting(f"OPTIONS[{name!r}]", options[name], problem)
        for name in (each for each in params if each.lower() in SETTINGS and each not in OF_DJANGO):
            problem = f"belongs in OPTIONS, and has no effect beside it; write 'OPTIONS': {{{name.lower()!r}: ...}}"
            raise InvalidSetting(name, params[name], problem)
        options.setdefault("namespace", NAMESPACE)
        place = (location, tuple(sorted(options.items())))
        super().__init__(repr(place), params)  # the local values are stored under that name, for all threads
        # Django's own is a plain lock: a signal handler that interrupts its holder would wait for ever.
        self._lock = _locks.setdefault(repr(place), new_lock(whole=True))
        if place not in _counts:
            _counts.setdefault(place, SharedCounts(location, options))
        self.counts = _counts[place]

    def add(self, key: str, value: object, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> bool:
        """Stores a value unless the key has one, and returns whether the value was stored.

        A key also has a value if another process had a count for it at the last exchange.
        """
        name = self._name(key, version)
        seconds = self._seconds(timeout)
        if self._counted(value, seconds):
            return not super().has_key(key, version) and self.counts.begin(name, value, seconds)
        _log_local(value)
        return self.counts.value(name) is None and bool(super().add(key, value, timeout, version))

    def get(self, key: str, default: object = None, version: int | None = None) -> Any:
        """Returns the value; `default` without one. A count includes other processes' parts as of the last exchange."""
        count = self.counts.value(self._name(key, version))
        return super().get(key, default, version) if count is None else count

    def set(self, key: str, value: object, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> None:
        """Stores a value; a count restarts at this value, for all processes."""
        name = self._name(key, version)
        seconds = self._seconds(timeout)
        if self._counted(value, seconds):
            super().delete(key, version)
            self.counts.put(name, value, seconds)
        else:
            _log_local(value)
            self.counts.drop(name)
            super().set(key, value, timeout, version)

    def touch(self, key: str, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> bool:
        """Changes the timeout of a value.

        If the value is a count, its present value is set anew for all processes, as by `set`. Other processes keep the
        timeouts that they have for it.
        """
        count = self.counts.value(self._name(key, version))
        if count is None:
            return bool(super().touch(key, timeout, version))
        self.set(key, count, timeout, version)
        return True

    def incr(self, key: str, delta: int = 1, version: int | None = None) -> int:
        """Adds `delta` to a count and returns the new count. A negative `delta` takes back at most this process's part.

        Raises ValueError if the key is unknown.
        """
        count = self.counts.change(self._name(key, version), delta)
        return int(super().incr(key, delta, version)) if count is None else count

    def has_key(self, key: str, version: int | None = None) -> bool:
        """Whether the key has a value in this process, or a count that this process has added or set."""
        return self.counts.value(self._name(key, version)) is not None or bool(super().has_key(key, version))

    def delete(self, key: str, version: int | None = None) -> bool:
        """Deletes a value in this process, or a count in all processes. Returns whether this process had the key."""
        dropped = self.counts.drop(self._name(key, version))
        return bool(super().delete(key, version)) or dropped

    def clear(self) -> None:
        """Deletes all values in this process, and, for all processes, the counts that this process has added or set."""
        self.counts.drop_all()
        super().clear()

    async def aadd(self, key: str, value: object, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> bool:
        return self.add(key, value, timeout, version)

    async def aget(self, key: str, default: object = None, version: int | None = None) -> Any:
        return self.get(key, default, version)

    async def aset(self, key: str, value: object, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> None:
        self.set(key, value, timeout, version)

    async def atouch(self, key: str, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> bool:
        return self.touch(key, timeout, version)

    async def aincr(self, key: str, delta: int = 1, version: int | None = None) -> int:
        """Adds `delta` to a count, as `incr`, and returns the new count. Django's own method takes two steps."""
        return self.incr(key, delta, version)

    async def adelete(self, key: str, version: int | None = None) -> bool:
        return self.delete(key, version)

    async def aclear(self) -> None:
        self.clear()

    def _counted(self, value: object, seconds: float | None) -> TypeGuard[int]:
        """Returns whether a value is counted by all processes together: a whole number, but not True or False.

        `seconds` is the timeout of the value; None means that it never expires.
        """
        return (
            isinstance(value, int)
            and not isinstance(value, bool)
            and 0 <= value <= COUNT_MAX
            and (seconds is None or seconds > 0)
            and self.counts.has_room_for(seconds)
        )

    def _seconds(self, timeout: float | None) -> float | None:
        seconds: float | None = self.default_timeout if timeout is DEFAULT_TIMEOUT else timeout
        return seconds

    def _name(self, key: str, version: int | None) -> str:
        return key_of(self.make_and_validate_key(key, version=version))


def _log_local(value: object) -> None:
    """Logs once that `value`, unless it is a number, is stored in this process only."""
    if not isinstance(value, int) and _logged.is_new():
        logger.warning(
            "reconverge: ReconvergeCache shares only whole numbers, and keeps a %s in this process; a throttle that "
            "stores one, as those of Django REST framework do, admits its rate in each process. Let the throttle ask a "
            "limiter, and use another cache for other values",
            type(value).__name__,
        )
