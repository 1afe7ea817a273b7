"""Which settings of an agent make sense."""

from __future__ import annotations

from typing import Final

from reconverge.clock import Clock
from reconverge.errors import InvalidSetting

SYNC_INTERVAL_MIN: Final = 0.001
SYNC_INTERVAL_MAX: Final = 3600.0
MIN_SYNC_INTERVAL: Final = 0.005
LEASE_INTERVALS_MIN: Final = 6
MILLION: Final = 1_000_000
LEASE_TIMEOUTS_MIN: Final = 3
REMOVED: Final = {"hints": "was removed; leave it out, and shorten sync_interval if nodes refuse too early"}
"""Settings of an agent that former versions had, and what to do about them."""
NAMESPACE_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:")


def checked_pace(sync_interval: float, min_sync_interval: float | None) -> float:
    """The seconds at least between two exchanges, by default a tenth of the interval. Raises InvalidSetting."""
    check_seconds("sync_interval", sync_interval, SYNC_INTERVAL_MIN, SYNC_INTERVAL_MAX)
    if min_sync_interval is None:
        return min(sync_interval, max(sync_interval / 10, MIN_SYNC_INTERVAL))
    check_seconds("min_sync_interval", min_sync_interval, 0.0, sync_interval)
    return min_sync_interval


def lease_min_s(sync_interval: float, exchange_timeout: float) -> float:
    """A lease that is over before an answer can come would never be worth anything."""
    return max(LEASE_INTERVALS_MIN * sync_interval, LEASE_TIMEOUTS_MIN * exchange_timeout)


def checked_namespace(namespace: object) -> str:
    """Return `namespace` if it can be one. Raises InvalidSetting."""
    if not isinstance(namespace, str) or not 1 <= len(namespace) <= 64:
        raise InvalidSetting("namespace", namespace, "must be a string of 1 to 64 characters")
    if not set(namespace) <= NAMESPACE_CHARACTERS:
        raise InvalidSetting("namespace", namespace, "may have letters, digits and _-.: only")
    return namespace


def check_lease(sync_interval: float, exchange_timeout: float, lease_s: float) -> None:
    """Raise InvalidSetting unless leases are long enough for such an interval."""
    least_s = lease_min_s(sync_interval, exchange_timeout)
    if lease_s < least_s:
        problem = f"needs a lease of at least {least_s:g} s, and it is {lease_s:g} s; restart with a longer lease_ttl"
        raise InvalidSetting("sync_interval", sync_interval, problem)


def check_seconds(name: str, value: object, least: float, most: float) -> None:
    """Raise InvalidSetting unless `value` is a number of seconds in those bounds."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise InvalidSetting(name, value, f"must be a number of seconds from {least:g} to {most:g}")


def checked_share(region_share: object) -> int:
    """The part of every limit that a region has by itself, in millionths. Raises InvalidSetting."""
    if isinstance(region_share, bool) or not isinstance(region_share, int | float):
        raise InvalidSetting("region_share", region_share, "must be a number above 0 and up to 1")
    ppm = round(region_share * MILLION) if 0 <= region_share <= 1 else 0
    if ppm < 1:
        raise InvalidSetting("region_share", region_share, "must be a number above 0 and up to 1, of six digits")
    return ppm


def checked_clock(clock: Clock) -> Clock:
    """Return `clock` if it can say what time it is. Raises InvalidSetting."""
    if not (callable(getattr(clock, "monotonic_ns", None)) and callable(getattr(clock, "wall_ns", None))):
        raise InvalidSetting("clock", clock, "is no Clock, which has monotonic_ns() and wall_ns(); leave it out, maybe")
    return clock


def check_truth(name: str, value: object) -> None:
    """Raise InvalidSetting unless `value` is True or False: "no" would count as true."""
    if not isinstance(value, bool):
        raise InvalidSetting(name, value, "must be True or False")


def check_count(name: str, value: object) -> None:
    """Raise InvalidSetting unless `value` is a whole number of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidSetting(name, value, "must be a whole number of at least 1")
