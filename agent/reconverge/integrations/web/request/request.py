"""A request and its response, as a limiter needs them from any framework."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, cast

from reconverge.integrations.web.request.read_path import ReadPath

HAS: Final = "it has `method`, `path`, `route`, `client`, `user`, `path_parameters`, `header(name)`"
METHOD_CHARACTERS_MAX: Final = 64
"""No method is longer that a rule may name. Of a longer one only so much is read that it is none of these."""
CANCELLED: Final = 499
"""The status of a response that its client did not wait for; servers log it so, and it is never sent."""
FAILED: Final = 500
"""The status of a response that the application did not begin."""


class Request(Protocol):
    """A request, as far as limits depend on it. Nothing here waits, and nothing here fails."""

    @property
    def method(self) -> str:
        """The method in capitals; `WEBSOCKET` for a connection that is no request. A very long one is cut."""
        ...

    @property
    def path(self) -> str:
        """The path as the client wrote it, decoded. There are as many as clients can think of: do not count by it."""
        ...

    @property
    def inner_paths(self) -> Sequence[str]:
        """The path without what the application is mounted at, as its router looks at it; none if it is not mounted."""
        ...

    @property
    def templates(self) -> Sequence[str]:
        """The pattern of the route that was found, as the router writes it, where that costs nothing to say.

        Several where the application is mounted: with and without the prefix; none if it is not known.
        """
        ...

    def seek_templates(self) -> Sequence[str]:
        """Returns the templates, after asking the router if need be."""
        ...

    @property
    def route(self) -> str:
        """The pattern or name of the route that was found, of which there are few; empty if none was."""
        ...

    @property
    def client(self) -> str | None:
        """The address that the request comes from, as far as it can be trusted; see `Addresses`."""
        ...

    @property
    def user(self) -> object:
        """The user that the framework has authenticated; None if there is none."""
        ...

    @property
    def path_parameters(self) -> Mapping[str, object]:
        """The values in the path, by the names that the route gives them."""
        ...

    @property
    def raw(self) -> Any:
        """The framework's own request."""
        ...

    def header(self, name: str) -> str | None:
        """The value of a header field, several joined by a comma; None when it is missing."""
        ...

    def single_header(self, name: str) -> str | None:
        """The value of a header field that occurs once; None when it is missing, or several say different things.

        Of several, applications believe the first, the last or all of them, and a client knows which.
        """
        ...


@dataclass(frozen=True, slots=True)
class PlainRequest:
    """A request made of values: for tests, and for servers that have no requests of their own."""

    method: str = "GET"
    path: str = "/"
    route: str = ""
    client: str | None = None
    user: object = None
    path_parameters: Mapping[str, object] = field(default_factory=dict[str, object])
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """By names in small letters."""
    raw: Any = None
    inner_paths: Sequence[str] = ()
    templates: Sequence[str] = ()
    _read_path: ReadPath | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def read_path(self) -> ReadPath:
        """The path and `inner_paths`, as rules read them: once."""
        if self._read_path is None:
            object.__setattr__(self, "_read_path", ReadPath(self.path, self.inner_paths))
        return cast("ReadPath", self._read_path)

    def seek_templates(self) -> Sequence[str]:
        return self.templates

    def header(self, name: str) -> str | None:
        return self.headers.get(name.lower())

    def single_header(self, name: str) -> str | None:
        return self.header(name)


@dataclass(frozen=True, slots=True)
class Response:
    """A response that has ended, as far as what it costs depends on it."""

    status: int
    """499 when the client was gone before it began, 500 when the application failed before it began."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """By names in small letters."""
    bytes_sent: int = 0
    """The size of the body in bytes; 0 where a framework does not show it."""
    complete: bool = True
    """Whether all of it was sent."""
    raw: Any = None
    """The framework's own response, where it has one."""

    def header(self, name: str) -> str | None:
        """The value of a header field; None when it is missing."""
        return self.headers.get(name.lower())
