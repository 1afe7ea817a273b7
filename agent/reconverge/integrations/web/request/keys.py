"""Key functions: they find the key of a request; and what becomes of keys that cannot be used.

A key function takes the request and returns a string, a number, a date, a UUID, an address, a path or a member of an
enumeration, several of them as a tuple, or None when it finds nothing. It may be a coroutine function where the
framework is asynchronous. One that raises, or returns what has no text of its own, has found nothing, and that is said.
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
from types import FunctionType
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar, cast
from uuid import UUID
from weakref import WeakKeyDictionary

from reconverge.errors import InvalidKey, InvalidSetting, shown
from reconverge.integrations.web.request.addresses import IPV6_PREFIX, grouped
from reconverge.integrations.web.request.request import Request
from reconverge.limiter.long_keys import OURS, hashed

KeyFunction: TypeAlias = Callable[[Any], Any] | Callable[[], Any]
"""Takes the request, a `Request`, or nothing, and returns what to count under; see above. In FastAPI and Starlette the
request has the attributes of theirs, too, and a function that is written for those may say that it takes one."""
Asked: TypeAlias = Callable[[Request], Any]
"""The same, once it is known to take the request."""
Function = TypeVar("Function", bound=Callable[..., Any])

REFUSE: Final = "refuse"
EXEMPT: Final = "exempt"
SHARED: Final = "shared"
ADDRESS: Final = "address"
MISSING: Final = (ADDRESS, SHARED, REFUSE, EXEMPT)
"""The choices for a request that has no key: count it by its address, count all such together, refuse it, or let it
pass uncounted."""
SHARED_KEY: Final = f"{OURS}nobody"
"""The key that all requests without a key share. Its value stays: nodes of older versions use the same."""
NOWHERE: Final = "-"
"""The part of a key for a missing thing, such as a route that was not found."""
METHODS: Final = frozenset([*map(str, HTTPMethod), "QUERY", "WEBSOCKET"])
"""Which count each on their own."""
WRITTEN: Final = (UUID, timedelta, Fraction, PurePath, IPv4Address, IPv6Address, IPv4Network, IPv6Network)
"""Types whose values are equal when their texts are."""
PARTS_MAX: Final = 16
_FIELD_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A token of HTTP's grammar."""
_ATTRIBUTES: Final = ("pk", "id", "identity", "username")
"""Where frameworks keep what tells one user from another, in the order of preference."""
_MADE_BY: Final = {
    "by_header": "'x-api-key'",
    "by_ip_network": "48",
    "by_path_parameter": "'tenant'",
    "together": "by_user, by_route",
}
"""The makers of key functions, and their arguments."""
_CLAIMS: Final = ("sub",)
"""Where tokens have it."""


class OfHeader(NamedTuple):
    """The key is the value of one header field."""

    name: str


class OfAddress(NamedTuple):
    """A key is the client's address, of IPv6 the network of so many bits."""

    ipv6_prefix: int


class OfUser(NamedTuple):
    """A key is the user that the framework has authenticated."""


class OfNothing(NamedTuple):
    """The key is the result of a function that takes no request; it can be called with anything in the place of one."""


Source: TypeAlias = OfHeader | OfAddress | OfUser | OfNothing
_sources: Final = WeakKeyDictionary[Callable[..., Any], Source]()
"""The thing that a key function looks at, where that is known.

Not as attributes: a wrapper of one would have them, too.
"""


def source_of(function: Callable[..., Any]) -> Source | None:
    """Returns the single thing that a key function of ours looks at; None for any other function."""
    return _sources.get(function) if type(function) is FunctionType else None


def by_ip(request: Request) -> str | None:
    """By the client's address; all of an IPv6 network of 64 bits count as one. See `Addresses` for proxies."""
    client = request.client
    return None if client is None else grouped(client)


_sources[by_ip] = OfAddress(IPV6_PREFIX)


def by_ip_network(ipv6_prefix: int) -> KeyFunction:
    """Makes a key function of the client's network of that size. Raises InvalidSetting unless it is 1 to 128 bits."""
    if isinstance(ipv6_prefix, bool) or not isinstance(ipv6_prefix, int) or not 1 <= ipv6_prefix <= 128:
        raise InvalidSetting("ipv6_prefix", ipv6_prefix, f"is not between 1 and 128; usual is {IPV6_PREFIX}")

    def by_network(request: Request) -> str | None:
        client = request.client
        return None if client is None else grouped(client, ipv6_prefix)

    _sources[by_network] = OfAddress(ipv6_prefix)
    return _named(by_network, by_ip_network, ipv6_prefix)


def by_header(name: str) -> KeyFunction:
    """By the value of a header field, such as an API key. A client that invents values has as many keys as it likes.

    Missing where several fields of that name differ: a client could join others to the key that is looked at.
    """
    _check_text("name", name)
    if not _FIELD_NAME.fullmatch(name):
        raise InvalidSetting("name", name, "is a name that no header field can have; write one like 'x-api-key'")

    def by_that_header(request: Request) -> str | None:
        return request.single_header(name)

    _sources[by_that_header] = OfHeader(name)
    return _named(by_that_header, by_header, name.lower())


def by_user(request: Request) -> str | int | UUID | None:
    """By the user that the framework has authenticated: by primary key, id, identity or name, whichever comes first."""
    return identity_of(request.user)


_sources[by_user] = OfUser()


def identity_of(user: object) -> str | int | UUID | None:
    """Returns a value that tells one user from another; None for a user without authentication.

    Raises InvalidKey for an object of which that is not known.
    """
    if user is None or getattr(user, "is_authenticated", True) is False:
        return None
    if isinstance(user, str | int | UUID):
        return user
    claims = cast("Mapping[str, object]", user) if isinstance(user, Mapping) else None
    for name in _ATTRIBUTES if claims is None else (*_CLAIMS, *_ATTRIBUTES):
        try:
            value = getattr(user, name, None) if claims is None else claims.get(name)
        except NotImplementedError:  # as Starlette's users say that they have none
            continue
        if isinstance(value, str | int | UUID):
            return value
    names = ", ".join(_ATTRIBUTES if claims is None else (*_CLAIMS, *_ATTRIBUTES))
    raise InvalidKey(f"{type(user).__name__} has none of {names}; give a key function that knows it")


def by_route(request: Request) -> str:
    """By the route that was found; all requests that lead nowhere count as one."""
    return request.route or NOWHERE


def by_method(request: Request) -> str:
    """By the method; those that clients make up count as one."""
    return request.method if request.method in METHODS else NOWHERE


def by_path_parameter(name: str) -> KeyFunction:
    """By a value in the path, such as `tenant` in `/{tenant}/items`."""
    _check_text("name", name)

    def by_that_parameter(request: Request) -> object:
        return request.path_parameters.get(name)

    return _named(by_that_parameter, by_path_parameter, name)


def everybody(_request: Request) -> str:
    """All together."""
    return "everybody"


def together(*parts: KeyFunction) -> KeyFunction:
    """By several things at once, as in `together(by_user, by_route)`: missing if any part is.

    Raises InvalidSetting unless there are 1 to 16 parts, all of which can be called.
    """
    if not 1 <= len(parts) <= PARTS_MAX:
        raise InvalidSetting("parts", len(parts), f"must be 1 to {PARTS_MAX} key functions")
    asked = [asks(part) for part in parts]
    slow = any(map(waits, asked))

    def by_all(request: Request) -> tuple[Any, ...]:
        return tuple(part(request) for part in asked)

    async def by_all_slowly(request: Request) -> tuple[Any, ...]:
        return tuple([await _come(part(request)) for part in asked])

    return _named(by_all_slowly if slow else by_all, together, *map(name_of_function, parts))


def name_of_function(function: object) -> str:
    """Returns the name of a key function, which limits may be named after."""
    return str(getattr(function, "__name__", type(function).__name__))


def _named(function: Function, maker: Callable[..., Any], *given: object) -> Function:
    """A key function that is named after what it was made of: others of its maker look at something else.

    Limits that are named after their key functions would else be one limit, in which a client of the one chooses keys
    of the other.
    """
    return _renamed(function, ".".join([maker.__name__, *map(str, given)]))


def _renamed(function: Function, name: str) -> Function:
    function.__name__ = name
    return function


def waits(function: Callable[..., Any]) -> bool:
    """Whether a function is known to return something that has to be awaited."""
    call = getattr(type(function), "__call__", None)  # noqa: B004  # of an object that can be called
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def is_application(thing: object) -> bool:
    """Whether that is an application of Flask, Starlette or FastAPI, in the place of something else."""
    return hasattr(thing, "wsgi_app") or hasattr(thing, "add_middleware")


def asks(function: object, what: str = "key_func") -> Asked:
    """A function of the request, or of nothing as Flask's users write them, as one of the request.

    Raises InvalidSetting for what cannot be called with either.
    """
    if not callable(function):
        raise InvalidSetting(what, function, "is not a function of the request; pass one, such as by_ip")
    if is_application(function):
        raise InvalidSetting(what, function, "is an application, and not a function of the request; write app=app")
    if function in (by_header, by_ip_network, by_path_parameter, together):
        name = name_of_function(function)
        example = _MADE_BY[name]
        raise InvalidSetting(what, function, f"is to be called first: write {what}={name}({example})")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return cast("Asked", function)  # a compiled function may have no signature to look at
    if _takes(signature, 1):
        return cast("Asked", function)
    if not _takes(signature, 0):
        raise InvalidSetting(what, function, "takes more than the request; leave its other parameters a default")
    without = cast("Callable[[], Any]", function)
    if waits(without):

        async def ask_slowly(_request: Request) -> Any:
            return await without()

        return _renamed(ask_slowly, name_of_function(function))
    asked = _renamed(lambda _request: without(), name_of_function(function))
    _sources[asked] = OfNothing()
    return asked


def checked_answer(said: object) -> bool:
    """Whether a function has said yes. Raises InvalidSetting for a text: "no" would be true."""
    if isinstance(said, str | bytes):
        raise InvalidSetting(
            "answer", said, "is text, where True or False is expected; compare it with the value that exempts"
        )
    return bool(said)


def written(value: object) -> str | None:
    """Writes a key function's result as one string; None when any part is missing. Raises InvalidKey."""
    if isinstance(value, str):
        # A subclass of str is compared more slowly, and its own `__str__` may show the same for all texts.
        return str.__str__(value) or None
    if value is None:
        return None
    if isinstance(value, tuple | list):
        return joined(cast("Iterable[object]", value))
    if isinstance(value, Enum):
        return written(value.value)
    if isinstance(value, bool):
        raise InvalidKey(f"a key is a text, a number, a date or a UUID, not a truth value: {value}")
    if isinstance(value, int):
        return str(int(value))  # the same number as ever, even where a class of its own would write it otherwise
    if isinstance(value, float | Decimal):
        return _number(value)
    if isinstance(value, datetime):
        # One moment can be written in as many time zones as a client likes.
        return (value if value.tzinfo is None else value.astimezone(UTC)).isoformat()
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, WRITTEN):
        return str(value) or None
    raise InvalidKey(f"a key is a text, a number, a date or a UUID, not {type(value).__name__}: {shown(value)}")


def _number(value: float | Decimal) -> str:
    """A number as one text, however a client has written it: 1.50 is 1.5, and -0.0 is 0."""
    if isinstance(value, Decimal):
        return str(value.normalize() + 0) if value.is_finite() else str(value)
    return str(value + 0.0)


def joined(parts: Iterable[object]) -> str | None:
    """Parts as one string, which no others have; None when any is missing, or there is none."""
    texts: list[str] = []
    for part in parts:
        text = written(part)
        if text is None:
            return None
        texts.append(escaped(text))
    return "|".join(texts) or None


def escaped(text: str) -> str:
    """A part of a key, so that it cannot be mistaken for several."""
    return text.replace("%", "%25").replace("|", "%7C") if "%" in text or "|" in text else text


def unescaped(part: str) -> str:
    """The text that `escaped` has made a part of a key of."""
    return part.replace("%7C", "|").replace("%25", "%") if "%" in part else part


def plain(key: str) -> str:
    """A key that was found in a request, and cannot be mistaken for one of ours."""
    return hashed(key) if key[0] == OURS else key


def checked_missing(missing: object) -> str:
    """Returns the word for requests without a key. Raises InvalidSetting for an unknown one."""
    if missing not in MISSING:
        raise InvalidSetting("missing", missing, f"is none of {', '.join(MISSING)}")
    return str(missing)


async def _come(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def takes(function: Callable[..., Any], arguments: int) -> bool:
    """Whether a function can be called with so many things; of something compiled that is not known, and so taken."""
    try:
        return _takes(inspect.signature(function), arguments)
    except (TypeError, ValueError):
        return True


def _takes(signature: inspect.Signature, arguments: int) -> bool:
    try:
        signature.bind(*[None] * arguments)
    except TypeError:
        return False
    return True


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str) or not value:
        raise InvalidSetting(name, value, "must be a text of at least one character")
