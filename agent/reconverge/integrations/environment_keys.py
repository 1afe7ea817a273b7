"""Finds keys in the WSGI environment itself, for key functions that only read a header field or an address.

The same is done for ASGI in `asgi/scope_keys.py`.
"""

# Theory of operation.
#
# Most limits count by an API key in a header, by the client's address, or by the result of a function without
# parameters. For such a limit, a `Request` would be made only to be read once. So if all key functions are of these
# kinds, finders read the keys from the environment.
#
# The finders find the same keys as the key functions. If proxies are trusted, an address depends on header fields, and
# the key function itself is called.

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from typing import Any, Final, TypeAlias, cast

from reconverge.integrations.web.bound_rule import Declared
from reconverge.integrations.web.request.addresses import (
    ADDRESS_CHARACTERS_MAX,
    Addresses,
    group_of_odd_peer,
    group_of_peers,
)
from reconverge.integrations.web.request.key_sources import OfAddress, OfHeader, OfNothing, OfUser, source_of
from reconverge.integrations.web.request.keys import Asked, identity_of

Finder: TypeAlias = Callable[[Mapping[str, Any]], Any]
UNPREFIXED: Final = frozenset({"CONTENT_TYPE", "CONTENT_LENGTH"})


def authenticated_by_server(environment: Mapping[str, Any]) -> object:
    """Returns REMOTE_USER, the user that the server has authenticated; None without one."""
    return environment.get("REMOTE_USER") or None


def finder_for(function: Asked, addresses: Addresses, user_in: Finder = authenticated_by_server) -> Finder | None:
    """Returns a finder: a function that finds the key in a WSGI environment, in place of the key function `function`.

    Returns None if `function` itself must be called.

    `user_in` finds the user in an environment.
    """
    source = source_of(function)
    if isinstance(source, OfHeader):
        return _in_header(name_in_environment(source.name))
    if isinstance(source, OfAddress) and addresses.believes_nothing:
        return _at_the_other_end(source.ipv6_prefix)
    if isinstance(source, OfUser):
        return lambda environment: identity_of(user_in(environment))
    return cast("Finder", function) if isinstance(source, OfNothing) else None


@lru_cache(maxsize=256)
def name_in_environment(name: str) -> str:
    """Returns the key of a WSGI environment for a header field: `HTTP_X_API_KEY` for `X-Api-Key`."""
    key = name.upper().replace("-", "_")
    return key if key in UNPREFIXED else f"HTTP_{key}"


@cache
def _in_header(wanted: str) -> Finder:
    def find(environment: Mapping[str, Any]) -> str | None:
        value = environment.get(wanted)
        return value if value is None or type(value) is str else str(value)

    return find


@cache
def _at_the_other_end(ipv6_prefix: int) -> Finder:
    group = group_of_peers(ipv6_prefix)

    def find(environment: Mapping[str, Any]) -> str | None:
        peer = environment.get("REMOTE_ADDR")
        if not peer:
            return None
        if type(peer) is str and len(peer) <= ADDRESS_CHARACTERS_MAX:
            return group(peer)
        return group_of_odd_peer(peer, ipv6_prefix)

    return find


def in_environment(
    declared: Declared, addresses: Addresses, user_in: Finder = authenticated_by_server
) -> tuple[Finder, Finder | None] | None:
    """Returns two functions that read a WSGI environment: one finds a rule's key, the other its scope.

    The second is None if the rule has no scope. Returns None in place of both if the rule's functions need a request
    object. The rule must apply to all requests. `user_in` finds the user in an environment.
    """
    find = finder_for(declared.key_function, addresses, user_in)
    part: Any = declared.part_of_key
    if find is None or (part is not None and declared.fixed_scope is None):  # only a request has a route
        return None
    return find, part
