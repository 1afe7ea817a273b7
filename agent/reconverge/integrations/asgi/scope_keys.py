"""Finds keys in the ASGI scope itself, for key functions that only read a header field, an address or the user."""

# Theory of operation.
#
# Most middlewares have one limit, by an API key in a header or by the client's address. Making a `Request` only to read
# such a key takes longer than the decision, its outcome and the response fields together. So if each key function is
# one of this library, and reads only a header field, the address or the user, another function (a finder) reads that
# directly from the ASGI scope. Another finder finds the part of the key that separates routes.
#
# The finders find the same keys as the key functions, and raise the same errors for a faulty scope. If proxies are
# trusted, an address depends on header fields, and the key function itself is called.

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias, cast

from reconverge.integrations.asgi.routes import operation_of
from reconverge.integrations.asgi.sending import field_name
from reconverge.integrations.web.bound_rule import Declared
from reconverge.integrations.web.request.addresses import (
    ADDRESS_CHARACTERS_MAX,
    Addresses,
    group_of_odd_peer,
    group_of_peers,
)
from reconverge.integrations.web.request.key_sources import OfAddress, OfHeader, OfUser, source_of
from reconverge.integrations.web.request.keys import NOWHERE, Asked, identity_of

Finder: TypeAlias = Callable[[Mapping[str, Any]], object]


def finder_for(function: Asked, addresses: Addresses) -> Finder | None:
    """Returns a function that finds, in an ASGI scope, the key that the key function `function` would return.

    Returns None if `function` itself must be called.
    """
    source = source_of(function)
    if isinstance(source, OfHeader):
        return _in_header(field_name(source.name))
    if isinstance(source, OfAddress) and addresses.believes_nothing:
        return _at_the_other_end(source.ipv6_prefix)
    return _user if isinstance(source, OfUser) else None


def user_of(scope: Mapping[str, Any]) -> object:
    """Returns the user in the scope, or in its `state`, where the application may store it; None without one."""
    user, state = scope.get("user"), scope.get("state")
    return state.get("user") if user is None and isinstance(state, Mapping) else user


def _user(scope: Mapping[str, Any]) -> object:
    return identity_of(user_of(scope))


def _route(scope: Mapping[str, Any]) -> str:
    """Returns the route as a part of the key, for rules that count each route separately; `-` if no route matches."""
    return operation_of(scope) or NOWHERE


@cache
def _in_header(wanted: bytes) -> Finder:
    def find(scope: Mapping[str, Any]) -> str | None:
        found, headers = None, scope["headers"]
        if headers.__class__ is not list:
            headers = _kept(scope)
        for name, value in headers:
            if name == wanted:
                if found is not None and value != found:
                    return None
                found = value
        return None if found is None else found.decode("latin-1")

    return find


def _kept(scope: Mapping[str, Any]) -> Sequence[Any]:
    """Returns the header fields of an ASGI scope.

    If the fields are an iterator, first puts a list of them into the scope, so that they can be read again.
    """
    headers = scope["headers"]
    if not isinstance(headers, Sequence):
        headers = cast("dict[str, Any]", scope)["headers"] = list(headers)
    return cast("Sequence[Any]", headers)


@cache
def _at_the_other_end(ipv6_prefix: int) -> Finder:
    group = group_of_peers(ipv6_prefix)

    def find(scope: Mapping[str, Any]) -> str | None:
        client = scope.get("client")
        if not client:
            return None
        peer = client[0]
        if type(peer) is str and len(peer) <= ADDRESS_CHARACTERS_MAX:
            return group(peer)
        return group_of_odd_peer(peer, ipv6_prefix)

    return find


def in_scope(declared: Declared, addresses: Addresses) -> tuple[Finder, Finder | None] | None:
    """Returns two functions that read an ASGI scope: the first finds a rule's key, the second its route or scope.

    The second is None if the rule counts neither by route nor by `scope`. Returns None in place of both if the key
    function itself must be called. The rule must apply to all requests.
    """
    find = finder_for(declared.key_function, addresses)
    return None if find is None else (find, part_in_scope(declared))


def part_in_scope(declared: Declared) -> Finder | None:
    """Returns a function that finds, in an ASGI scope, the route or `scope` that a rule adds to its keys.

    Returns None if the rule adds neither.
    """
    part: Any = declared.part_of_key
    return _route if part is not None and declared.fixed_scope is None else part
