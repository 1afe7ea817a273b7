"""A cache of Django in which whole numbers are counted by all processes together, and all else stays in this one.

    CACHES = {
        "default": {...},
        "ratelimit": {
            "BACKEND": "reconverge.integrations.django.cache.ReconvergeCache",
            "LOCATION": "redis://localhost:6379/0",
            "OPTIONS": {"sync_interval": 0.1},
        },
    }
    RATELIMIT_USE_CACHE = "ratelimit"

It is made for django-ratelimit, which asks with `add` and `incr`. Neither says what the limit is, so nothing can be
held back for others, as there is with a limit: see `shared_counts`. While processes cannot exchange, each counts alone,
and a limit is exceeded by up to (N-1) times itself.
"""

from __future__ import annotations

from typing import Any, Final, TypeGuard

from reconverge.errors import MissingExtra
from reconverge.runtime.locks import new_lock

try:
    from django.core.cache.backends.base import DEFAULT_TIMEOUT
    from django.core.cache.backends.locmem import LocMemCache
except ModuleNotFoundError as error:
    raise MissingExtra(__name__, error.name or "django", "django") from None

from reconverge.integrations.dropin.shared_agent import key_of
from reconverge.integrations.dropin.shared_counts import COUNT_MAX, SharedCounts

NAMESPACE: Final = "django"
LOCAL: Final = frozenset(("MAX_ENTRIES", "CULL_FREQUENCY"))
"""Options of every cache; here they are about what stays in this process."""

_counts: dict[tuple[str, tuple[tuple[str, object], ...]], SharedCounts] = {}
"""By place and settings: Django makes a cache for each thread, and they all count together."""
_locks: dict[str, Any] = {}
"""Of what stays in this process, likewise."""


class ReconvergeCache(LocMemCache):  # type: ignore[misc]  # pyright: ignore[reportUntypedBaseClass]  # Django has no types
    """Counts whole numbers from 0 to 10**12 with all processes that have the same LOCATION, namespace and KEY_PREFIX.

    A count lasts from its first increment for the timeout with which it was added or set, in each process by the
    timeout that it was given there. A process knows a count that it has added or set itself, if only in vain; it does
    not know what others alone have. Everything else (text, objects, negative numbers) is kept as by `LocMemCache`: in
    this process, and no further than that.

    LOCATION is a hub's URL. OPTIONS are settings of `reconverge.Agent`, in small letters, beside Django's own; the
    `namespace` is "django" by default. Nothing waits for the hub, or fails because of it, and so the asynchronous
    methods do not need a thread.

    Raises:
        InvalidSetting, UnknownHub, MissingExtra: see `shared_agent.settings_at`.
    """

    def __init__(self, location: str, params: dict[str, Any]) -> None:
        options = {name: value for name, value in params.get("OPTIONS", {}).items() if name not in LOCAL}
        options.setdefault("namespace", NAMESPACE)
        place = (location, tuple(sorted(options.items())))
        super().__init__(repr(place), params)  # what stays in this process is kept under that name, for all threads
        # Django's own is a plain lock, which a signal handler would wait for in the middle of a request for ever.
        self._lock = _locks.setdefault(repr(place), new_lock(whole=True))
        if place not in _counts:
            _counts.setdefault(place, SharedCounts(location, options))
        self.counts = _counts[place]

    def add(self, key: str, value: object, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> bool:
        """Keep a value unless there is one; returns whether there was none, here or elsewhere as far as known."""
        name = self._name(key, version)
        seconds = self._seconds(timeout)
        if self._counted(value, seconds):
            return not super().has_key(key, version) and self.counts.begin(name, value, seconds)
        return self.counts.value(name) is None and bool(super().add(key, value, timeout, version))

    def get(self, key: str, default: object = None, version: int | None = None) -> Any:
        """The value, or the count as of the last exchange."""
        count = self.counts.value(self._name(key, version))
        return super().get(key, default, version) if count is None else count

    def set(self, key: str, value: object, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> None:
        """Keep a value; a count begins anew, for all processes."""
        name = self._name(key, version)
        seconds = self._seconds(timeout)
        if self._counted(value, seconds):
            super().delete(key, version)
            self.counts.put(name, value, seconds)
        else:
            self.counts.drop(name)
            super().set(key, value, timeout, version)

    def touch(self, key: str, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> bool:
        """Give a value another timeout; a count begins anew at what it is, and other processes keep the timeout."""
        count = self.counts.value(self._name(key, version))
        if count is None:
            return bool(super().touch(key, timeout, version))
        self.set(key, count, timeout, version)
        return True

    def incr(self, key: str, delta: int = 1, version: int | None = None) -> int:
        """Count up and return the count; down by no more than was counted here. Raises ValueError if it is unknown."""
        count = self.counts.change(self._name(key, version), delta)
        return int(super().incr(key, delta, version)) if count is None else count

    def has_key(self, key: str, version: int | None = None) -> bool:
        """Whether there is a value, or a count that this process knows."""
        return self.counts.value(self._name(key, version)) is not None or bool(super().has_key(key, version))

    def delete(self, key: str, version: int | None = None) -> bool:
        """Forget a value, or a count for all processes; returns whether it was known here."""
        dropped = self.counts.drop(self._name(key, version))
        return bool(super().delete(key, version)) or dropped

    def clear(self) -> None:
        """Forget all that this process knows, its counts for all processes."""
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
        """Adds in one step, where Django's own takes two."""
        return self.incr(key, delta, version)

    async def adelete(self, key: str, version: int | None = None) -> bool:
        return self.delete(key, version)

    async def aclear(self) -> None:
        self.clear()

    def _counted(self, value: object, seconds: float | None) -> TypeGuard[int]:
        """Whether a value is one that all processes count together; True and False are not."""
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
