"""The interface of requests and responses that limits read, for any framework."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, cast

from reconverge.integrations.web.request.read_path import ReadPath

HAS: Final = "its attributes are `method`, `path`, `route`, `client`, `user`, `path_parameters`, `header(name)`"
METHOD_CHARACTERS_MAX: Final = 64
"""The longest method that a rule may name; a longer method of a request is cut, so that no rule matches it."""
CANCELLED: Final = 499
"""The status that stands for a response which the client did not wait for; servers log this status, but never send
it."""
FAILED: Final = 500
"""The status that stands for a response which a failed application did not begin."""


class Request(Protocol):
    """A request, in the form that limits read. No method waits or raises an error."""

    @property
    def method(self) -> str:
        """Returns the method in capitals; `WEBSOCKET` for a websocket's connection. A very long method is cut."""
        ...

    @property
    def path(self) -> str:
        """Returns the decoded path as the client wrote it.

        Limits must not count by the path, because clients can invent any number of paths.
        """
        ...

    @property
    def inner_paths(self) -> Sequence[str]:
        """Returns the path without each prefix at which the application may be mounted; empty if it is not mounted."""
        ...

    @property
    def templates(self) -> Sequence[str]:
        """Returns the pattern of the matched route as the router writes it, if that is known already.

        If the application is mounted, returns several, with and without the prefix; empty if the route is unknown.
        """
        ...

    def seek_templates(self) -> Sequence[str]:
        """Returns the patterns of the matched route, as `templates`, but asks the router for them if necessary."""
        ...

    @property
    def route(self) -> str:
        """Returns the pattern or name of the matched route, of which there are few; empty if none matched."""
        ...

    @property
    def operation(self) -> str:
        """Returns the text by which `per_route` counts separately: the route, after its methods if these are known."""
        ...

    @property
    def client(self) -> str | None:
        """Returns the client's address by the reports of trusted proxies; None without one. See `Addresses`."""
        ...

    @property
    def user(self) -> object:
        """Returns the user that the framework has authenticated; None if there is none."""
        ...

    @property
    def path_parameters(self) -> Mapping[str, object]:
        """Returns the values of the path's parameters, by their names in the route."""
        ...

    @property
    def raw(self) -> Any:
        """Returns the framework's own request."""
        ...

    def header(self, name: str) -> str | None:
        """Returns the value of a header field, with several values joined by commas; None if it is missing."""
        ...

    def single_header(self, name: str) -> str | None:
        """Returns the value of a header field that occurs once; None if it is missing, or occurs with different values.

        If it occurs several times, applications may use the first, the last or all, and a client could exploit that.
        """
        ...


@dataclass(frozen=True, slots=True)
class PlainRequest:
    """A request that is made of given values, for tests and for servers without request objects."""

    method: str = "GET"
    path: str = "/"
    route: str = ""
    client: str | None = None
    user: object = None
    path_parameters: Mapping[str, object] = field(default_factory=dict[str, object])
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """The header fields, by names in lower case."""
    raw: Any = None
    inner_paths: Sequence[str] = ()
    templates: Sequence[str] = ()
    _read_path: ReadPath | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def operation(self) -> str:
        return self.route

    @property
    def read_path(self) -> ReadPath:
        """Returns the `ReadPath` of the request's path and `inner_paths`, which rules compare with their paths."""
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
    """A response that has ended, with the values that the cost of its request may depend on."""

    status: int
    """The status; 499 if the client disconnected before the response began, 500 if the application failed before."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """The header fields, by names in lower case."""
    bytes_sent: int = 0
    """The bytes of the body; 0 if the framework does not report them."""
    complete: bool = True
    """Whether the response was sent completely."""
    raw: Any = None
    """The framework's own response; None if it has none."""

    def header(self, name: str) -> str | None:
        """Returns the value of a header field; None if it is missing."""
        return self.headers.get(name.lower())
