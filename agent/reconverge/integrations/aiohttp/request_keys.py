"""Finds keys in aiohttp's own request, for key functions that only read a header field or an address.

A comment in `asgi/scope_keys.py`, which does the same for ASGI, gives the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

from aiohttp import web
from multidict import istr

from reconverge.integrations.web.bound_rule import Declared
from reconverge.integrations.web.request.addresses import (
    ADDRESS_CHARACTERS_MAX,
    Addresses,
    group_of_odd_peer,
    group_of_peers,
    single,
)
from reconverge.integrations.web.request.key_sources import OfAddress, OfHeader, source_of
from reconverge.integrations.web.request.keys import Asked

Finder: TypeAlias = Callable[[web.Request], object]


def finder_for(function: Asked, addresses: Addresses) -> Finder | None:
    """Returns a function that finds, in aiohttp's own request, the key that the key function `function` would return.

    Returns None if `function` itself must be called.
    """
    source = source_of(function)
    if isinstance(source, OfHeader):
        return _in_header(source.name)
    if isinstance(source, OfAddress) and addresses.believes_nothing:
        return _at_the_other_end(source.ipv6_prefix)
    return None


@cache
def _in_header(name: str) -> Finder:
    wanted = istr(name)

    def find(request: web.Request) -> str | None:
        values = request.headers.getall(wanted, ())
        return values[0] if len(values) == 1 else single(values)

    return find


@cache
def _at_the_other_end(ipv6_prefix: int) -> Finder:
    group = group_of_peers(ipv6_prefix)

    def find(request: web.Request) -> str | None:
        peer = request.remote
        if not peer:
            return None
        return group(peer) if len(peer) <= ADDRESS_CHARACTERS_MAX else group_of_odd_peer(peer, ipv6_prefix)

    return find


def in_request(declared: Declared, addresses: Addresses) -> tuple[Finder, Finder | None] | None:
    """Returns two functions that read aiohttp's own request: one finds a rule's key, the other its scope.

    The second is None if the rule has no scope. Returns None in place of both if the rule's functions need an
    `AiohttpRequest`. The rule must apply to all requests.
    """
    find = finder_for(declared.key_function, addresses)
    part: Any = declared.part_of_key
    if find is None or (part is not None and declared.fixed_scope is None):  # only the rule can find a route
        return None
    return find, part
