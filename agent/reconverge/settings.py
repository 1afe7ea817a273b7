"""Checks the settings of an agent: names, numbers, intervals and leases."""

from __future__ import annotations

from dataclasses import dataclass
from inspect import isclass
from typing import Final, Self

from reconverge.clock import Clock, Seconds, in_seconds
from reconverge.errors import InvalidSetting

SYNC_INTERVAL_MIN: Final = 0.001
SYNC_INTERVAL_MAX: Final = 3600.0
MIN_SYNC_INTERVAL: Final = 0.005
MAX_SILENCE_MAX: Final = 60.0
WAIT_MAX: Final = 3600.0
"""The longest time, in seconds, for which a call may wait for the hub or for other nodes."""
LEASE_INTERVALS_MIN: Final = 6
EXCHANGES_MIN: Final = 10
"""How many exchanges should fit into a window, so that nodes share a limit well."""
ASKS_LIMIT: Final = 100_000
MILLION: Final = 1_000_000
LEASE_TIMEOUTS_MIN: Final = 3
NAMESPACE_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:")


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """The checked settings of an agent; durations are in seconds. The docstring of `Agent` describes each setting."""

    namespace: str
    sync_interval: float
    min_sync_interval: float
    max_silence: float
    lease_ttl: float | None
    lease_min: float
    """The shortest lease that these settings allow, by `lease_min_s`: a lease must last for several exchanges."""
    exchange_timeout: float
    stop_timeout: float
    sigterm: bool
    max_keys: int
    new_keys_max: int
    asks_max: int
    key_bytes_max: int
    region_ppm: int
    """The region's part of every limit, in millionths."""

    @classmethod
    def checked(
        cls,
        *,
        namespace: str,
        sync_interval: Seconds,
        min_sync_interval: Seconds | None,
        max_silence: Seconds,
        lease_ttl: Seconds | None,
        exchange_timeout: Seconds,
        stop_timeout: Seconds,
        sigterm: bool,
        max_keys: int,
        new_keys_max: int,
        asks_max: int,
        key_bytes_max: int,
        region_share: float,
    ) -> Self:
        """Checks the settings that a program has given, and returns them.

        Raises InvalidSetting for the first invalid one.
        """
        interval, timeout = in_seconds(sync_interval), in_seconds(exchange_timeout)
        lease, stop, silence = in_seconds(lease_ttl), in_seconds(stop_timeout), in_seconds(max_silence)
        shortest = checked_pace(interval, in_seconds(min_sync_interval))
        check_seconds("max_silence", silence, 0.0, MAX_SILENCE_MAX)
        check_seconds("exchange_timeout", timeout, 0.001, 60.0)
        lease_min = lease_min_s(interval, timeout)
        if lease is not None:
            check_seconds("lease_ttl", lease, lease_min, 86_400.0)
        check_seconds("stop_timeout", stop, 0.0, 600.0)
        check_truth("sigterm", sigterm)
        check_count("max_keys", max_keys)
        check_count("new_keys_max", new_keys_max)
        check_asks(asks_max)
        check_count("key_bytes_max", key_bytes_max)
        return cls(
            namespace=checked_namespace(namespace),
            sync_interval=interval,
            min_sync_interval=shortest,
            max_silence=silence,
            lease_ttl=lease,
            lease_min=lease_min,
            exchange_timeout=timeout,
            stop_timeout=stop,
            sigterm=sigterm,
            max_keys=max_keys,
            new_keys_max=new_keys_max,
            asks_max=asks_max,
            key_bytes_max=key_bytes_max,
            region_ppm=checked_share(region_share),
        )


def checked_pace(sync_interval: float, min_sync_interval: float | None) -> float:
    """Checks two settings in seconds, and returns `min_sync_interval`; if that is None, a tenth of `sync_interval`.

    Raises InvalidSetting if one is out of range.
    """
    check_seconds("sync_interval", sync_interval, SYNC_INTERVAL_MIN, SYNC_INTERVAL_MAX)
    if min_sync_interval is None:
        return min(sync_interval, max(sync_interval / 10, MIN_SYNC_INTERVAL))
    check_seconds("min_sync_interval", min_sync_interval, 0.0, sync_interval)
    return min_sync_interval


def lease_min_s(sync_interval: float, exchange_timeout: float) -> float:
    """Returns the shortest useful lease, in seconds: it must not end before the hub's next answers can have come."""
    return max(LEASE_INTERVALS_MIN * sync_interval, LEASE_TIMEOUTS_MIN * exchange_timeout)


def checked_namespace(namespace: object) -> str:
    """Returns `namespace` if it is valid. Raises InvalidSetting if it is not."""
    if not isinstance(namespace, str) or not 1 <= len(namespace) <= 64:
        raise InvalidSetting("namespace", namespace, "must be a string of 1 to 64 characters")
    if not set(namespace) <= NAMESPACE_CHARACTERS:
        raise InvalidSetting("namespace", namespace, "may contain only letters, digits and _-.:")
    return namespace


def check_lease(sync_interval: float, exchange_timeout: float, lease_s: float) -> None:
    """Raises InvalidSetting if leases are too short for this sync interval and timeout."""
    least_s = lease_min_s(sync_interval, exchange_timeout)
    if lease_s < least_s:
        problem = f"needs a lease of at least {least_s:g} s, not {lease_s:g} s; restart with a longer lease_ttl"
        raise InvalidSetting("sync_interval", sync_interval, problem)


def check_slot_lease(sync_interval: float, exchange_timeout: float, lease_s: float) -> None:
    """Raises InvalidSetting if the lease of slots is too short for this sync interval and timeout."""
    least_s = lease_min_s(sync_interval, exchange_timeout)
    if lease_s < least_s:
        problem = (
            f"must be at least {least_s:g} s for a limit on work in progress: a lease has to last for at least "
            f"{LEASE_INTERVALS_MIN} sync intervals of {sync_interval:g} s, and {LEASE_TIMEOUTS_MIN} exchange timeouts; "
            "give a longer lease, or a shorter interval"
        )
        raise InvalidSetting("lease", lease_s, problem)


def check_seconds(name: str, value: object, least: float, most: float) -> None:
    """Raises InvalidSetting unless `value` is a number of seconds from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise InvalidSetting(name, value, f"must be a number of seconds from {least:g} to {most:g}")


def checked_seconds(name: str, value: Seconds, least: float, most: float) -> float:
    """Returns `value` in seconds. Raises InvalidSetting unless it is a number of seconds from `least` to `most`."""
    seconds = in_seconds(value)
    check_seconds(name, seconds, least, most)
    return seconds


def checked_share(region_share: object) -> int:
    """Checks `region_share`, the fraction of every limit that belongs to one region. Returns it in millionths.

    Raises InvalidSetting.
    """
    if isinstance(region_share, bool) or not isinstance(region_share, int | float):
        raise InvalidSetting("region_share", region_share, "must be a number above 0 and up to 1")
    ppm = round(region_share * MILLION) if 0 <= region_share <= 1 else 0
    if ppm < 1:
        raise InvalidSetting("region_share", region_share, "must be a number from 0.000001 to 1")
    return ppm


def checked_clock(clock: Clock) -> Clock:
    """Returns `clock` if it has the methods of a `Clock`. Raises InvalidSetting if it does not, or is a class."""
    if isclass(clock):
        raise InvalidSetting("clock", clock, f"is a class, not a clock; write {getattr(clock, '__name__', clock)}()")
    if not (callable(getattr(clock, "monotonic_ns", None)) and callable(getattr(clock, "wall_ns", None))):
        raise InvalidSetting("clock", clock, "is no Clock: it lacks monotonic_ns() or wall_ns(); inherit Clock")
    return clock


def check_truth(name: str, value: object) -> None:
    """Raises InvalidSetting unless `value` is True or False: a string such as "no" would count as true."""
    if not isinstance(value, bool):
        raise InvalidSetting(name, value, "must be True or False")


def check_asks(value: object) -> None:
    """Raises InvalidSetting unless `value` is a valid `asks_max`: how many exchanges a second requests may cause."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= ASKS_LIMIT:
        raise InvalidSetting("asks_max", value, f"must be a whole number from 0 (no request asks) to {ASKS_LIMIT}")


def check_count(name: str, value: object) -> None:
    """Raises InvalidSetting unless `value` is a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidSetting(name, value, "must be a whole number of at least 1")
