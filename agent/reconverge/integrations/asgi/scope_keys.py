"""Finds the key of a request in the scope of ASGI itself, for key functions of which it is known what they look at."""

# Theory of operation.
#
# Most middlewares have one limit, by an API key in a header or by the client's address. For these an object that stands
# for the request is made, asked one thing, and thrown away; together with what that calls, this cost more than the
# decision, its outcome and the response fields. So where a single rule is about all requests and goes the straight way
# (`web/straight.py`), and its key function is one of ours that looks at one thing, that is found in the scope. So is
# the part of the key that tells routes apart.
#
# What is found is what the key function finds, and a mistake in the scope raises what it raises there: whatever the
# straight way leaves to the guard, the guard goes on with that, and the key function is not asked. Where proxies are
# believed, an address depends on header fields, and the key function is asked as ever.

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias

from reconverge.integrations.asgi.routes import route_of
from reconverge.integrations.asgi.sending import field_name
from reconverge.integrations.web.bound_rule import Declared
from reconverge.integrations.web.guard import Guard
from reconverge.integrations.web.request.addresses import (
    ADDRESS_CHARACTERS_MAX,
    Addresses,
    group_of_odd_peer,
    group_of_peers,
)
from reconverge.integrations.web.request.keys import (
    NOWHERE,
    Asked,
    OfAddress,
    OfHeader,
    OfUser,
    identity_of,
    source_of,
)
from reconverge.integrations.web.straight import Deciding

Finder: TypeAlias = Callable[[Mapping[str, Any]], object]


def finder_for(function: Asked, addresses: Addresses) -> Finder | None:
    """What finds in a scope what a key function finds in its request; None if that has to be asked."""
    source = source_of(function)
    if isinstance(source, OfHeader):
        return _in_header(field_name(source.name))
    if isinstance(source, OfAddress) and addresses.believes_nothing:
        return _at_the_other_end(source.ipv6_prefix)
    return _user if isinstance(source, OfUser) else None


def _user(scope: Mapping[str, Any]) -> object:
    """As `by_user` does."""
    return identity_of(scope.get("user"))


def _route(scope: Mapping[str, Any]) -> str:
    """The part of a key for a rule that counts each route on its own, and is about all paths."""
    return route_of(scope) or NOWHERE


@cache
def _in_header(wanted: bytes) -> Finder:
    def find(scope: Mapping[str, Any]) -> str | None:
        """As `AsgiRequest.single_header` does."""
        found = None
        for name, value in scope["headers"]:
            if name == wanted:
                if found is not None and value != found:
                    return None
                found = value
        return None if found is None else found.decode("latin-1")

    return find


@cache
def _at_the_other_end(ipv6_prefix: int) -> Finder:
    group = group_of_peers(ipv6_prefix)

    def find(scope: Mapping[str, Any]) -> str | None:
        """As `by_ip` does."""
        client = scope.get("client")
        if not client:
            return None
        peer = client[0]
        if type(peer) is str and len(peer) <= ADDRESS_CHARACTERS_MAX:
            return group(peer)
        return group_of_odd_peer(peer, ipv6_prefix)

    return find


def by_scope(guard: Guard, rules: Sequence[Declared], find: Finder | None = None) -> Deciding | None:
    """What decides by the scope alone, if there is one rule of which all else is known; else None.

    `find` finds the key, where the key function itself does not say what it looks at. What is returned is not to
    be asked while requests are let pass before, or nothing is decided at all.
    """
    straight = guard.straight_about_all(rules)
    if straight is None:
        return None
    declared = straight.declared
    find = find or finder_for(declared.key_function, guard.addresses)
    if find is None:
        return None
    part: Callable[[Any], Any] | None = declared.part_of_key
    if part is not None and declared.fixed_scope is None:
        part = _route
    return straight.deciding(find, part)
