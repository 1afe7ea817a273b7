"""A request of Flask, in the form that limits read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

import flask

from reconverge.integrations.environment_keys import authenticated_by_server
from reconverge.integrations.web.request.addresses import Addresses
from reconverge.integrations.web.request.request import HAS
from reconverge.integrations.wsgi import WsgiRequest

_proxied: Final = cast("Any", flask.request)
current_request: Final[Callable[[], flask.Request]] = _proxied._get_current_object  # noqa: SLF001
"""A function that returns the current request itself, not a proxy as `flask.request` is. Raises RuntimeError outside of
a request."""


def user_now(environment: Mapping[str, Any]) -> object:
    """Returns the user of Flask-Login, else `g.user` of the application, else the server's user; None without one."""
    of_application = flask.g.get("_login_user") or flask.g.get("user")
    return of_application or authenticated_by_server(environment)


class FlaskRequest(WsgiRequest):
    """Adapts Flask's own request, kept as `raw`, to the interface `Request` that limits read."""

    __slots__ = ("_request",)

    def __init__(self, request: flask.Request, addresses: Addresses) -> None:
        super().__init__(request.environ, addresses)
        self._request = request

    @property
    def route(self) -> str:
        """Returns the endpoint; empty if no route matches."""
        return self._request.endpoint or ""

    @property
    def templates(self) -> Sequence[str]:
        """Returns the pattern of the URL rule that Werkzeug has matched, with and without the application's root."""
        rule = self._request.url_rule
        if rule is None:
            return ()
        root = self._request.root_path.rstrip("/")
        return (rule.rule, f"{root}{rule.rule}") if root else (rule.rule,)

    @property
    def user(self) -> object:
        return user_now(self._request.environ)

    @property
    def path_parameters(self) -> Mapping[str, object]:
        return self._request.view_args or {}

    def __getattr__(self, name: str) -> Any:
        """Returns an attribute of Flask's own request. Raises AttributeError, which lists the known attributes."""
        if not name.startswith("_") and hasattr(self._request, name):
            return getattr(self._request, name)
        raise AttributeError(f"the request has no {name!r}; {HAS}, and the attributes of Flask's own request")

    @property
    def raw(self) -> flask.Request:
        return self._request
