"""Describes which part of a request each key function of this library reads, so that it is read from there at once."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, Final, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

from reconverge.errors import InvalidSetting


class OfHeader(NamedTuple):
    """Describes a key function whose key is the value of one header field."""

    name: str


class OfAddress(NamedTuple):
    """Describes a key function whose key is the client's address; for IPv6, its network of `ipv6_prefix` bits."""

    ipv6_prefix: int


class OfUser(NamedTuple):
    """Describes a key function whose key is the user that the framework has authenticated."""


class OfNothing(NamedTuple):
    """Describes a key function that wraps a function without parameters, and so does not read the request."""


class OfParameter(NamedTuple):
    """Describes a key function whose key is the value of one parameter of the path."""

    name: str


class OfSeveral(NamedTuple):
    """Describes a key function that combines the keys of several."""

    parts: tuple[Callable[..., Any], ...]


Source: TypeAlias = OfHeader | OfAddress | OfUser | OfNothing | OfParameter | OfSeveral
sources: Final = WeakKeyDictionary[Callable[..., Any], Source]()
"""The part of a request that each of this library's key functions reads, by the function. It is no attribute of the
function, because `functools.wraps` would copy that to wrappers."""


def source_of(function: Callable[..., Any]) -> Source | None:
    """Returns the part of a request that a key function of this library reads; None for any other function."""
    return sources.get(function) if type(function) is FunctionType else None


def reads_user(function: Callable[..., Any]) -> bool:
    """Returns whether a key function, or one that it combines, is `by_user`."""
    source = source_of(function)
    return isinstance(source, OfUser) or (isinstance(source, OfSeveral) and any(map(reads_user, source.parts)))


def parameters_of(function: Callable[..., Any]) -> list[str]:
    """Returns the parameters of the path that a key function of this library reads."""
    source = source_of(function)
    if isinstance(source, OfSeveral):
        return [name for part in source.parts for name in parameters_of(part)]
    return [source.name] if isinstance(source, OfParameter) else []


def check_unrouted(function: Callable[..., Any], problem: str) -> None:
    """Raises InvalidSetting for a key function of path parameters where no request has any; `problem` is the reason."""
    if parameters_of(function):
        raise InvalidSetting("key_func", function.__name__, problem)
