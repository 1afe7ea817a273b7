"""A request of Django, in the form that limits read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from asgiref.sync import sync_to_async
from django.urls import Resolver404, resolve
from django.utils.functional import LazyObject, empty

from reconverge.integrations.django.settings import UserNotLoaded
from reconverge.integrations.web.guard import Guard
from reconverge.integrations.web.request.addresses import Addresses, is_port
from reconverge.integrations.web.request.request import HAS
from reconverge.integrations.wsgi import WsgiRequest

HttpRequest: TypeAlias = Any
"""Django's own class, which has no type annotations."""


class DjangoRequest(WsgiRequest):
    """Adapts Django's own request, kept as `raw`, to the interface `Request` that limits read, for WSGI and ASGI."""

    __slots__ = ("_match", "_request", "_user", "_waits")

    def __init__(self, request: HttpRequest, addresses: Addresses, *, waits: bool = False) -> None:
        super().__init__(request.META, addresses)
        self._request = request
        self._waits = waits
        self._user: object = empty
        self._match: Any = empty

    @property
    def path(self) -> str:
        return str(self._request.path)

    @property
    def inner_paths(self) -> Sequence[str]:
        """Returns `path_info`, which Django matches with URL patterns, in a sequence; empty if it is the whole path."""
        path: str = self._request.path_info
        return () if path == self._request.path else (path,)

    @property
    def templates(self) -> Sequence[str]:
        """Returns the URL pattern of the view, with and without SCRIPT_NAME; empty until Django has found the view."""
        route = getattr(self._request.resolver_match if self._match is empty else self._match, "route", None)
        script = str(self._request.META.get("SCRIPT_NAME") or "").rstrip("/")
        return (f"/{route}", f"{script}/{route}") if isinstance(route, str) else ()

    def seek_templates(self) -> Sequence[str]:
        self._resolved()
        return self.templates

    @property
    def route(self) -> str:
        """Returns the view's name with namespaces, or its dotted path; empty if the URL leads nowhere."""
        match = self._resolved()
        return "" if match is None else str(match.view_name)

    @property
    def path_parameters(self) -> Mapping[str, object]:
        match = self._resolved()
        return {} if match is None else match.kwargs

    @property
    def is_at_port(self) -> bool:
        """Returns whether the server is known to listen at a TCP port; False under WSGI, where this is unknown."""
        scope: Mapping[str, object] = getattr(self._request, "scope", None) or {}
        return is_port(scope.get("server"))

    @property
    def user(self) -> object:
        """Returns the user that an authentication middleware has found; raises UserNotLoaded if it must be awaited."""
        user = getattr(self._request, "user", None)
        if not self._waits or not _is_unloaded(user):
            return user or super().user
        if self._user is empty:
            raise UserNotLoaded
        return self._user

    def __getattr__(self, name: str) -> Any:
        """Returns an attribute of Django's own request. Raises AttributeError, which lists the known attributes."""
        if not name.startswith("_") and hasattr(self._request, name):
            return getattr(self._request, name)
        raise AttributeError(f"the request has no {name!r}; {HAS}, and the attributes of Django's own request")

    @property
    def raw(self) -> HttpRequest:
        return self._request

    def header(self, name: str) -> str | None:
        scope = getattr(self._request, "scope", None)
        if scope is None:
            return super().header(name)
        # META does not distinguish a field with an underscore in its name from the one with a hyphen.
        wanted = name.lower().encode("latin-1", "replace")
        values: list[bytes] = [value for key, value in scope["headers"] if key == wanted]
        return b", ".join(values).decode("latin-1") if values else None

    async def load_user(self, guard: Guard) -> None:
        """Loads the user, which may query the database. If that fails, logs the error; the request then has no user."""
        user, load = self._request.user, getattr(self._request, "auser", None)
        self._user = None
        try:
            self._user = await (sync_to_async(_loaded)(user) if load is None else load())
        except Exception as error:  # noqa: BLE001  # a failing database must not fail rules that need no user
            guard.failed(error, "user")

    def _resolved(self) -> Any:
        """Returns Django's match of the request's URL with a view; None if the URL leads nowhere.

        Resolves the URL if Django has not done so yet.
        """
        if self._match is empty:
            self._match = self._request.resolver_match
            if self._match is None:
                try:
                    self._match = resolve(self._request.path_info, getattr(self._request, "urlconf", None))
                except Resolver404:
                    self._match = None
        return self._match


def _is_unloaded(user: object) -> bool:
    return isinstance(user, LazyObject) and getattr(user, "_wrapped", None) is empty  # this does not load the user


def _loaded(user: object) -> object:
    """Returns `user`; None if it is Django's lazy object and there is no user behind it.

    Reading the class of Django's lazy user loads the user, which may block.
    """
    return user if isinstance(user.__class__, type) else None
