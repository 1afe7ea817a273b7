"""A Starlette route that accepts all paths, for an application with a table of paths of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from reconverge.errors import MissingExtra

try:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute, Match, NoMatchFound
except ModuleNotFoundError as error:
    raise MissingExtra("the console", error.name or "starlette", "console") from error


class EveryPath(BaseRoute):
    """A route that passes every HTTP request, of any path and any method, to `answer`.

    `fields` are added to every response that does not have them. The response to a HEAD request gets no body.
    """

    def __init__(self, answer: Callable[[Request], Awaitable[Response]], fields: Mapping[str, str]) -> None:
        self._answer = answer
        self._fields = fields

    def matches(self, scope: Any) -> tuple[Match, Any]:
        """Matches every HTTP request, and no other connections."""
        return (Match.FULL if scope["type"] == "http" else Match.NONE), {}

    async def handle(self, scope: Any, receive: Any, send: Any) -> None:
        response = await self._answer(Request(scope, receive))
        for name, value in self._fields.items():
            response.headers.setdefault(name, value)
        if scope["method"] == "HEAD":
            response.body = b""
        await response(scope, receive, send)

    def url_path_for(self, name: str, /, **path_params: Any) -> Any:
        """Raises NoMatchFound, because no path has a name."""
        raise NoMatchFound(name, path_params)
