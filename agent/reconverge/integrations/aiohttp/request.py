"""A request to an aiohttp server, in the form that limits read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aiohttp import web

from reconverge.integrations.web.request.addresses import Addresses, Located, is_port, single
from reconverge.integrations.web.request.read_path import below_mount
from reconverge.integrations.web.request.request import HAS, METHOD_CHARACTERS_MAX


class AiohttpRequest(Located):
    """Adapts aiohttp's own request, kept as `raw`, to the interface `Request` that limits read."""

    __slots__ = ("_mount", "raw")

    def __init__(self, request: web.Request, addresses: Addresses, mount: str = "") -> None:
        super().__init__(addresses)
        self.raw = request
        self._mount = mount

    @property
    def method(self) -> str:
        """Returns the HTTP method in capitals; of a websocket, GET."""
        return self.raw.method[: METHOD_CHARACTERS_MAX + 1].upper()

    @property
    def path(self) -> str:
        return self.raw.path

    @property
    def inner_paths(self) -> Sequence[str]:
        """Returns the path without the prefix of the limited sub-application, in a sequence; empty without a prefix."""
        return below_mount(self.raw.path, (self._mount,)) if self._mount else ()

    @property
    def templates(self) -> Sequence[str]:
        """Returns the pattern of the matched resource, with and without the prefix of the sub-application."""
        resource = self.raw.match_info.route.resource
        if resource is None:
            return ()
        whole = resource.canonical
        return (whole, *below_mount(whole, (self._mount,))) if self._mount else (whole,)

    @property
    def route(self) -> str:
        """Returns the canonical pattern of the matched resource, or an empty string if no resource matched."""
        resource = self.raw.match_info.route.resource
        return "" if resource is None else resource.canonical

    @property
    def peer(self) -> str | None:
        return self.raw.remote or None

    @property
    def is_at_port(self) -> bool:
        transport = self.raw.transport
        return transport is not None and is_port(transport.get_extra_info("sockname"))

    @property
    def user(self) -> object:
        """Returns `request["user"]`, where the application stores the user; None without one."""
        return self.raw.get("user")

    @property
    def path_parameters(self) -> Mapping[str, object]:
        return self.raw.match_info

    def __getattr__(self, name: str) -> Any:
        """Returns an attribute of aiohttp's own request. Raises AttributeError, which lists the known attributes."""
        if not name.startswith("_") and hasattr(self.raw, name):
            return getattr(self.raw, name)
        raise AttributeError(f"the request has no {name!r}; {HAS}, and the attributes of aiohttp's own request")

    def __getitem__(self, name: str) -> Any:
        return self.raw[name]

    def header(self, name: str) -> str | None:
        values = self.raw.headers.getall(name, None)
        return None if values is None else ", ".join(values)

    def found_header(self, name: str) -> str | None:
        return single(self.raw.headers.getall(name, []))
