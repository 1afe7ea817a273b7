"""Key functions, which find the key of a request, and the handling of unusable keys.

A key function takes the request and returns a string, a number, a date, a UUID, an address, a path, a member of an
enumeration, a tuple of these, or None if it finds no key. In an asynchronous framework it may be a coroutine function.
If it raises an error, or returns a value of any other type, the request has no key, and this is logged.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from http import HTTPMethod
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from pathlib import PurePath
from typing import Any, Final, TypeAlias, TypeVar, cast
from uuid import UUID

from reconverge.arguments import takes
from reconverge.errors import InvalidKey, InvalidSetting, shown
from reconverge.integrations.web.request.addresses import IPV6_PREFIX, grouped
from reconverge.integrations.web.request.distinctive import check_distinctive
from reconverge.integrations.web.request.injected import injected_parameter
from reconverge.integrations.web.request.key_sources import (
    OfAddress,
    OfHeader,
    OfNothing,
    OfParameter,
    OfSeveral,
    OfUser,
    sources,
)
from reconverge.integrations.web.request.request import Request
from reconverge.limiter.long_keys import OURS, hashed

KeyFunction: TypeAlias = Callable[[Any], Any] | Callable[[], Any]
"""A function that takes a `Request` or no argument, and returns the key; see the head of this file. In FastAPI and
Starlette, the request has all attributes of the framework's request, and a function may be annotated with its type."""
Asked: TypeAlias = Callable[[Request], Any]
"""A function of the application that takes the request as its argument, such as a key function."""
Function = TypeVar("Function", bound=Callable[..., Any])

REFUSE: Final = "refuse"
EXEMPT: Final = "exempt"
SHARED: Final = "shared"
ADDRESS: Final = "address"
MISSING: Final = (ADDRESS, SHARED, REFUSE, EXEMPT)
"""The ways to treat a request without a key: count it by address, count all such requests as one, refuse, exempt."""
SHARED_KEY: Final = f"{OURS}nobody"
"""The key that all requests without a key share. Its value must not change, because older nodes use it."""
NOWHERE: Final = "-"
"""The text in a key for a missing value, such as the route of a request that matches no route."""
METHODS: Final = frozenset([*map(str, HTTPMethod), "QUERY", "WEBSOCKET"])
"""The methods that have a count of their own in `by_method`; all others share one."""
WRITTEN: Final = (UUID, timedelta, Fraction, PurePath, IPv4Address, IPv6Address, IPv4Network, IPv6Network)
"""Types whose values are equal if their texts are."""
PARTS_MAX: Final = 16
IN_DEPENDS: Final = "key_func=Depends(that_function)"
_FIELD_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""Matches a token of HTTP's grammar, the form of the names of header fields."""
_ATTRIBUTES: Final = ("pk", "id", "identity", "username")
"""Attributes in which frameworks store a user's identity, in order of preference."""
_MADE_BY: Final = {
    "by_header": "'x-api-key'",
    "by_ip_network": "48",
    "by_path_parameter": "'tenant'",
    "together": "by_user, by_route",
}
"""Functions that return a key function, each with an example argument, for the error if the call is missing."""
_CLAIMS: Final = ("sub",)
"""The claims of a token that hold the user's identity."""


def by_ip(request: Request) -> str | None:
    """Returns the client's address as the key; for IPv6, its network of 64 bits. See `Addresses` for proxies."""
    client = request.client
    return None if client is None else grouped(client)


sources[by_ip] = OfAddress(IPV6_PREFIX)


def by_ip_network(ipv6_prefix: int) -> KeyFunction:
    """Returns a key function like `by_ip` for IPv6 networks of another length. Raises InvalidSetting.

    `ipv6_prefix` is the length in bits, from 1 to 128. IPv4 addresses stay whole.
    """
    if isinstance(ipv6_prefix, bool) or not isinstance(ipv6_prefix, int) or not 1 <= ipv6_prefix <= 128:
        raise InvalidSetting("ipv6_prefix", ipv6_prefix, f"is not between 1 and 128; the usual value is {IPV6_PREFIX}")

    def by_network(request: Request) -> str | None:
        client = request.client
        return None if client is None else grouped(client, ipv6_prefix)

    sources[by_network] = OfAddress(ipv6_prefix)
    return _named(by_network, by_ip_network, ipv6_prefix)


def by_header(name: str) -> KeyFunction:
    """Returns a key function whose key is the value of a header field, such as an API key.

    A client that invents values gets as many keys. The key is missing if several fields of that name differ: otherwise
    a client could add a field to choose its key.
    """
    _check_text("name", name)
    if not _FIELD_NAME.fullmatch(name):
        raise InvalidSetting("name", name, "is not a valid name of a header field; write a name such as 'x-api-key'")
    check_distinctive(name)

    def by_that_header(request: Request) -> str | None:
        return request.single_header(name)

    sources[by_that_header] = OfHeader(name)
    return _named(by_that_header, by_header, name.lower())


def by_user(request: Request) -> str | int | UUID | None:
    """Returns the authenticated user's primary key, id, identity or name as the key: the first of these that exists."""
    return identity_of(request.user)


sources[by_user] = OfUser()


def identity_of(user: object) -> str | int | UUID | None:
    """Returns the identity of `user`; None if `user` is None, or is not authenticated.

    Raises InvalidKey for a user that has none of the known attributes.
    """
    if user is None or getattr(user, "is_authenticated", True) is False:
        return None
    if isinstance(user, str | int | UUID):
        return user
    claims = cast("Mapping[str, object]", user) if isinstance(user, Mapping) else None
    for name in _ATTRIBUTES if claims is None else (*_CLAIMS, *_ATTRIBUTES):
        try:
            value = getattr(user, name, None) if claims is None else claims.get(name)
        except NotImplementedError:  # raised by Starlette's users, which have no identity
            continue
        if isinstance(value, str | int | UUID):
            return value
    names = ", ".join(_ATTRIBUTES if claims is None else (*_CLAIMS, *_ATTRIBUTES))
    raise InvalidKey(f"{type(user).__name__} has none of {names}; pass a key function that returns the user's identity")


def by_route(request: Request) -> str:
    """Returns the matched route as the key; all requests without a route share a key."""
    return request.route or NOWHERE


def by_method(request: Request) -> str:
    """Returns the HTTP method as the key; all methods that clients invent share a key."""
    return request.method if request.method in METHODS else NOWHERE


def by_path_parameter(name: str) -> KeyFunction:
    """Returns a key function whose key is a value in the path, such as `tenant` in `/{tenant}/items`."""
    _check_text("name", name)

    def by_that_parameter(request: Request) -> object:
        return request.path_parameters.get(name)

    sources[by_that_parameter] = OfParameter(name)
    return _named(by_that_parameter, by_path_parameter, name)


def everybody(_request: Request) -> str:
    """Returns the same key for all requests, so that they are counted together."""
    return "everybody"


def together(*parts: KeyFunction) -> KeyFunction:
    """Returns a key function that combines the keys of several, as in `together(by_user, by_route)`.

    If any of `parts` finds no key, the returned function finds none. Raises InvalidSetting unless there are 1 to 16
    parts, all of which can be called.
    """
    if not 1 <= len(parts) <= PARTS_MAX:
        raise InvalidSetting("parts", len(parts), f"must be 1 to {PARTS_MAX} key functions")
    asked = [asks(part) for part in parts]
    slow = any(map(waits, asked))

    def by_all(request: Request) -> tuple[Any, ...]:
        return tuple(part(request) for part in asked)

    async def by_all_slowly(request: Request) -> tuple[Any, ...]:
        return tuple([await _come(part(request)) for part in asked])

    function = by_all_slowly if slow else by_all
    sources[function] = OfSeveral(tuple(asked))
    return _named(function, together, *map(name_of_function, parts))


def name_of_function(function: object) -> str:
    """Returns the name of a key function, which may become part of a limit's name."""
    return str(getattr(function, "__name__", type(function).__name__))


def _named(function: Function, maker: Callable[..., Any], *given: object) -> Function:
    """Names a key function after the function `maker` that made it and its arguments `given`; returns the key function.

    Limits may be named after their key functions. With equal names, two limits with different keys would be one limit,
    and a client that can choose its key in the first could use up another client's quota in the second.
    """
    return _renamed(function, ".".join([maker.__name__, *map(str, given)]))


def _renamed(function: Function, name: str) -> Function:
    function.__name__ = name
    return function


def waits(function: Callable[..., Any]) -> bool:
    """Returns whether `function` is known to return an awaitable."""
    call = getattr(type(function), "__call__", None)  # noqa: B004  # for callable objects
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def is_application(thing: object) -> bool:
    """Returns whether `thing` is an application of Flask, Starlette or FastAPI, passed as the wrong argument."""
    return hasattr(thing, "wsgi_app") or hasattr(thing, "add_middleware")


def asks(function: object, what: str = "key_func") -> Asked:
    """Returns `function` if it takes a request, or a wrapper that takes one if `function` has no parameters.

    Raises InvalidSetting for anything else. `what` is the name of the setting that has this value.
    """
    if not callable(function):
        raise InvalidSetting(what, function, "is not a function of the request; pass one, such as by_ip")
    if is_application(function):
        raise InvalidSetting(what, function, "is an application, not a function of the request; write app=app")
    if function in (by_header, by_ip_network, by_path_parameter, together):
        name = name_of_function(function)
        example = _MADE_BY[name]
        raise InvalidSetting(what, function, f"must be called first: write {what}={name}({example})")
    parameter = injected_parameter(function)
    if parameter is not None:
        remedy = "let it take the request alone, and read from there"
        if what == "key_func":
            remedy = f"write {IN_DEPENDS} in FastAPI's Limits, or {remedy}"
        problem = f"gets the request as its parameter {parameter!r}, where it expects something else; {remedy}"
        raise InvalidSetting(what, function, problem)
    if takes(function, 1):
        return cast("Asked", function)
    if not takes(function, 0):
        remedy = f", or in FastAPI's Limits write {IN_DEPENDS}" if what == "key_func" else ""
        problem = f"requires more arguments than the request; give its other parameters a default{remedy}"
        raise InvalidSetting(what, function, problem)
    without = cast("Callable[[], Any]", function)
    if waits(without):

        async def ask_slowly(_request: Request) -> Any:
            return await without()

        return _renamed(ask_slowly, name_of_function(function))
    asked = _renamed(lambda _request: without(), name_of_function(function))
    sources[asked] = OfNothing()
    return asked


def checked_answer(said: object) -> bool:
    """Returns `said`, the result of a function that answers yes or no, as a bool.

    Raises InvalidSetting for a text, because even "no" would count as true, and for an object that is always true, as
    an anonymous user is. A match of a regular expression is an answer, because the function returns None otherwise.
    """
    if said is True or said is False or said is None:
        return bool(said)
    if isinstance(said, str | bytes):
        raise InvalidSetting(
            "answer", said, "is text, where True or False is expected; compare it with the value that exempts"
        )
    kind = said.__class__  # not `type(said)`: the user of Django's request is a proxy
    if not any({"__bool__", "__len__"} & vars(each).keys() for each in kind.__mro__) and kind is not re.Match:
        problem = "is the class of the answer, all objects of which are true; return True or False, as user.is_staff is"
        raise InvalidSetting("answer", kind, problem)
    return bool(said)


def written(value: object) -> str | None:
    """Returns `value`, a key function's result, as one string; None if any part of it is missing.

    Raises InvalidKey for a value of a type that cannot be a key.
    """
    if isinstance(value, str):
        # A plain str: a subclass is compared more slowly, and its `__str__` may return one text for all values.
        return str.__str__(value) or None
    if value is None:
        return None
    if isinstance(value, tuple | list):
        return joined(cast("Iterable[object]", value))
    if isinstance(value, Enum):
        return written(value.value)
    if isinstance(value, bool):
        raise InvalidKey(f"a key must be a text, a number, a date or a UUID, not a truth value: {value}")
    if isinstance(value, int):
        return str(int(value))  # the plain number, even if a subclass of int has another text
    if isinstance(value, float | Decimal):
        return _number(value)
    if isinstance(value, datetime):
        # One moment can be written in many time zones, and a client might choose among them.
        return (value if value.tzinfo is None else value.astimezone(UTC)).isoformat()
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, WRITTEN):
        return str(value) or None
    raise InvalidKey(f"a key must be a text, a number, a date or a UUID, not {type(value).__name__}: {shown(value)}")


def _number(value: float | Decimal) -> str:
    """Returns a number as text, so that equal numbers have equal texts: 1.5 for 1.50, and 0.0 for -0.0."""
    if isinstance(value, Decimal):
        return str(value.normalize() + 0) if value.is_finite() else str(value)
    return str(value + 0.0)


def joined(parts: Iterable[object]) -> str | None:
    """Returns `parts` joined to one string, which no other parts give; None if a part is missing, or without parts."""
    texts: list[str] = []
    for part in parts:
        text = written(part)
        if text is None:
            return None
        texts.append(escaped(text))
    return "|".join(texts) or None


def escaped(text: str) -> str:
    """Returns `text` with `|` and `%` escaped, so that it is read as one part of a key, not several."""
    return text.replace("%", "%25").replace("|", "%7C") if "%" in text or "|" in text else text


def unescaped(part: str) -> str:
    """Returns the text from which `escaped` made `part`."""
    return part.replace("%7C", "|").replace("%25", "%") if "%" in part else part


def plain(key: str) -> str:
    """Returns `key`, which was found in a request, or its hash if it begins like the keys that this library makes."""
    return hashed(key) if key[0] == OURS else key


def checked_missing(missing: object) -> str:
    """Returns `missing`, the setting for requests without a key. Raises InvalidSetting unless it is in `MISSING`."""
    if missing not in MISSING:
        raise InvalidSetting("missing", missing, f"is not one of {', '.join(MISSING)}")
    return str(missing)


async def _come(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str) or not value:
        raise InvalidSetting(name, value, "must be a text of at least one character")
