"""Makes the hub and the fallback of an agent from its settings, without connecting to them yet."""

from __future__ import annotations

from dataclasses import replace
from inspect import iscoroutinefunction
from typing import Final, NamedTuple

from reconverge.clock import Clock
from reconverge.errors import HubUnavailable, InvalidSetting
from reconverge.hub.checking.answers import OddCell, first_odd_cell
from reconverge.hub.fallback import TwoHubs, two_hubs
from reconverge.hub.fallback.mistaken import no_hub
from reconverge.hub.hashing import KeyHasher, hashing
from reconverge.hub.port import Eraser, Hub, KeyReader
from reconverge.hub.registry import MEMORY, UNKNOWN_OPTION, HubSettings, open_hub, redacted, scheme_of

WITHOUT_CREDENTIALS: Final = frozenset((MEMORY, "embedded", "mqtt", "mqtts"))
"""The schemes of hubs that take no `credentials` function."""


class OpenedHub(NamedTuple):
    """An opened hub, and its name for messages and statistics."""

    hub: Hub | None
    """The hub; None for memory://, which has no hub."""
    name: str


def open_hubs(
    hub: str | Hub,
    fallback: str | Hub | None,
    settings: HubSettings,
    clock: Clock,
    *,
    odd_cell: OddCell = first_odd_cell,
    hasher: KeyHasher | None = None,
) -> OpenedHub:
    """Opens `hub`, and combines it with `fallback` by `two_hubs` unless `fallback` is None. Raises InvalidSetting.

    With a `hasher` both hubs receive hashes in place of keys. `odd_cell` finds an implausible answer of a hub.
    """
    first = _hashed(_opened(hub, settings), hasher)
    settings = replace(settings, credentials=None)  # a fallback has its login in its own URL
    if fallback is None:
        return first
    try:
        second = _hashed(_opened(fallback, settings), hasher)
    except InvalidSetting as error:
        raise InvalidSetting("fallback" if error.name == "hub" else error.name, error.value, error.problem) from None
    if first.hub is None or second.hub is None:
        raise InvalidSetting(
            "fallback",
            second.name,
            f"needs two hubs that nodes share, and {MEMORY}:// is none; name two, or leave fallback out",
        )
    if type(hub) is type(fallback) and hub == fallback:
        problem = "is the hub itself, so nothing is left if that is away; name another server, or leave fallback out"
        raise InvalidSetting("fallback", second.name, problem)
    both = two_hubs(
        first.hub, second.hub, clock=clock, timeout_s=settings.timeout_s, name=second.name, odd_cell=odd_cell
    )
    return OpenedHub(both, f"{first.name} (fallback {second.name})")


def _hashed(opened: OpenedHub, hasher: KeyHasher | None) -> OpenedHub:
    """Returns `opened` with its hub wrapped by `hashing`; returns it unchanged without a hub or without a hasher."""
    if hasher is None or opened.hub is None:
        return opened
    return opened._replace(hub=hashing(opened.hub, hasher))


def key_reader_at(hub: Hub, shard: int, name: str) -> KeyReader:
    """Returns the hub from which to read keys of `shard`: `hub`, or if that is a `TwoHubs`, its hub in use for `shard`.

    Raises HubUnavailable for a hub that cannot read keys; `name` is the hub's name in the message.
    """
    at = hub_in_use(hub, shard)
    if not isinstance(at, KeyReader):
        problem = f"the hub {name} cannot read the use of all nodes: name one that implements reconverge.hub.KeyReader"
        raise HubUnavailable("unsupported", problem, applied=False)
    return at


def hub_in_use(hub: Hub, shard: int) -> Hub:
    """Returns `hub`, or if that is a `TwoHubs`, the hub with which the node exchanges about this shard now."""
    return hub.hub_of(shard) if isinstance(hub, TwoHubs) else hub


def hubs_in(hub: Hub) -> tuple[Hub, ...]:
    """Returns a tuple of the one hub, or of both hubs if `hub` is a `TwoHubs`."""
    return hub.both if isinstance(hub, TwoHubs) else (hub,)


def eraser_in(hub: Hub, name: str) -> Eraser:
    """Returns `hub` if identities can be erased from it; otherwise raises HubUnavailable. `name` is the hub's name."""
    if not isinstance(hub, Eraser):
        problem = f"the hub {name} cannot erase identities: name one that implements reconverge.hub.Eraser"
        raise HubUnavailable("unsupported", problem, applied=False)
    return hub


def _check_credentials(hub: str | Hub, credentials: object) -> None:
    """Raises InvalidSetting if `credentials` is no function, or if the hub would never call it."""
    if not callable(credentials) or iscoroutinefunction(credentials):
        raise InvalidSetting(
            "credentials", "***", "must be a plain function that returns (user, password); pass it without calling it"
        )
    if not isinstance(hub, str):
        raise InvalidSetting(
            "credentials", "***", "needs a hub's URL, and the hub is an object; give the object the login"
        )
    scheme = scheme_of(hub)
    if scheme in WITHOUT_CREDENTIALS:
        problem = f"is for Redis and Valkey hubs, and {scheme}:// has no changing login; leave it out"
        raise InvalidSetting("credentials", "***", problem)


def _opened(hub: str | Hub, settings: HubSettings) -> OpenedHub:
    if settings.credentials is not None:
        _check_credentials(hub, settings.credentials)
    if isinstance(hub, str):
        if scheme_of(hub) == MEMORY:
            if "/" in hub.partition("://")[2]:
                raise InvalidSetting(
                    "hub", redacted(hub), f"has a path; for agents that share their counts write {MEMORY}://NAME"
                )
            option = hub.partition("?")[2].partition("=")[0]
            if option:
                raise InvalidSetting("hub", redacted(hub), f"{UNKNOWN_OPTION}: {option}; {MEMORY}:// has none")
            if set("?#") & set(hub):
                raise InvalidSetting(
                    "hub", redacted(hub), f"has options after ? or #, and {MEMORY}:// has none; leave them out"
                )
            return OpenedHub(None, redacted(hub))
        return OpenedHub(open_hub(hub, settings), redacted(hub))
    if not isinstance(hub, Hub):
        raise no_hub(hub)
    return OpenedHub(hub, repr(hub))
