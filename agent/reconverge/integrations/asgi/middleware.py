"""Rate limits for any ASGI application, as a middleware that wraps it.

The middleware adds header fields to the application's `http.response.start`. All other messages pass unchanged.

app = RateLimitMiddleware(app, "100/minute", agent="redis://localhost:6379/0")
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Unpack, cast

from reconverge.arguments import with_advice
from reconverge.errors import InvalidSetting
from reconverge.integrations.asgi.routes import operation_of, root_of, route_of, router_in, routes_of, templates_for
from reconverge.integrations.asgi.scope_keys import in_scope, user_of
from reconverge.integrations.asgi.sending import (
    BEGINNING,
    App,
    Message,
    Receive,
    Scope,
    Send,
    Sending,
    adding,
    decided_once,
    encoded,
    field_name,
)
from reconverge.integrations.misplaced import warn_if_charged_before, warn_if_dropped
from reconverge.integrations.web.bound_rule import FoundKey
from reconverge.integrations.web.guard import Guard
from reconverge.integrations.web.options import OF_LIMITS, GuardSettings, check_asgi, one_of, with_advice_about_class
from reconverge.integrations.web.outcome import OUTCOME, Outcome
from reconverge.integrations.web.pipeline import Admitted, Decide, RefusedByOne
from reconverge.integrations.web.request.addresses import Addresses, Client, Located, is_port
from reconverge.integrations.web.request.read_path import below_mount
from reconverge.integrations.web.request.request import HAS, METHOD_CHARACTERS_MAX, Response
from reconverge.integrations.web.rules import Limits, Rule, all_rules
from reconverge.integrations.web.unmatched import UnmatchedRules

WEBSOCKET: Final = "WEBSOCKET"
"""The name in a rule's `methods` that stands for websocket connections, which have no HTTP method."""
POLICY_VIOLATION: Final = 1008
TRY_AGAIN_LATER: Final = 1013
CLOSE_CODES: Final = (POLICY_VIOLATION, TRY_AGAIN_LATER)


def checked_close_code(close_code: int) -> int:
    """Returns `close_code`, with which websockets are closed. Raises InvalidSetting unless it is 1008 or 1013."""
    if close_code not in CLOSE_CODES:
        problem = "is neither 1008 (against the policy) nor 1013 (try again later)"
        raise InvalidSetting("close_code", close_code, problem)
    return close_code


class AsgiRequest(Located):
    """Adapts an ASGI scope, kept as `raw`, to the interface `Request` that limits read.

    `router` is the application inside the middlewares that has routes, or None. `root` is the `root_path` that this
    application declares, as FastAPI applications do. If Starlette is imported, the attributes of its connection
    (`headers`, `cookies`, `query_params`, `state`) can be read here, too; `connection` is such an object, or None.
    """

    __slots__ = ("_connection", "_root", "_router", "raw")

    def __init__(
        self, scope: Scope, addresses: Addresses, router: Any = None, root: str = "", connection: Any = None
    ) -> None:
        # As `Located.__init__` does, without the call.
        self._addresses, self._client, self._read_path, self._said = addresses, ..., None, None
        self.raw = scope
        self._router = router
        self._root = root
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        """Returns an attribute of Starlette's connection. Raises AttributeError, which lists the known attributes."""
        starlette: Any = sys.modules.get("starlette.requests")
        if starlette is not None and not name.startswith("_"):
            if self._connection is None:
                self._connection = starlette.HTTPConnection(self.raw)
            with suppress(AttributeError):
                return getattr(self._connection, name)
        raise AttributeError(f"the request has no {name!r}; {HAS}, and `raw`, the scope of ASGI")

    @property
    def client(self) -> Client | None:
        """Returns the client's address: a text with the attributes `host` and `port`, as in Starlette's requests."""
        address = super().client
        if address is None:
            return None
        client = Client(address)
        peer = self.raw.get("client")
        if peer and peer[0] == address:
            client.port = peer[1]
        return client

    @property
    def method(self) -> str:
        return str(self.raw.get("method") or WEBSOCKET)[: METHOD_CHARACTERS_MAX + 1].upper()

    @property
    def path(self) -> str:
        return str(self.raw["path"])

    @property
    def inner_paths(self) -> Sequence[str]:
        """Returns the path without the server's `root_path`, and without the application's; empty if both are empty."""
        root = self.raw.get("root_path")
        return below_mount(str(self.raw["path"]), (str(root or ""), self._root)) if root or self._root else ()

    @property
    def templates(self) -> Sequence[str]:
        """Returns the route's pattern if Litestar has stored it in the scope; else an empty sequence."""
        template = self.raw.get("path_template")
        return (template,) if isinstance(template, str) else ()

    def seek_templates(self) -> Sequence[str]:
        """Searches all routes of Starlette or FastAPI, and returns the patterns of those that match the path."""
        return templates_for(self.raw, self._router, self._root)

    @property
    def route(self) -> str:
        """Returns the route's pattern of FastAPI, Starlette or Litestar, even before these have routed the request."""
        return route_of(self.raw)

    @property
    def operation(self) -> str:
        return operation_of(self.raw)

    @property
    def peer(self) -> str | None:
        client = self.raw.get("client")
        return client[0] if client else None

    @property
    def is_at_port(self) -> bool:
        return is_port(self.raw.get("server"))

    @property
    def user(self) -> object:
        return user_of(self.raw)

    @property
    def path_parameters(self) -> Mapping[str, object]:
        return cast("Mapping[str, object]", self.raw.get("path_params") or {})

    def header(self, name: str) -> str | None:
        values = self._values(name)
        return b", ".join(values).decode("latin-1") if values else None

    def found_header(self, name: str) -> str | None:
        wanted, found = field_name(name), None
        for key, value in self.raw["headers"]:
            if key == wanted:
                if found is not None and value != found:
                    return None
                found = value
        return None if found is None else found.decode("latin-1")

    def _values(self, name: str) -> list[bytes]:
        wanted = field_name(name)
        return [value for key, value in self.raw["headers"] if key == wanted]


@with_advice(OF_LIMITS)
class RateLimitMiddleware:
    """Limits the requests and websocket connections to an ASGI application.

    Args:
        app: the application.
        limits: the limits of all requests and connections together, counted per key; see `Rule.limits`.
        rules: further limits, for example of requests to some paths.
        messages: limits of the messages that clients send through websockets, for each key.
        close_code: the code that closes a websocket with too many messages: 1008, or 1013 (try again later).
        guard: the settings that all the limits share; or give these settings, such as `agent`, as keyword arguments.

    Raises:
        InvalidLimit, InvalidSetting, LimitConflict: a limit or a setting is invalid, or a name is taken.
    """

    def __init__(
        self,
        app: App,
        limits: Limits | None = None,
        *,
        rules: Sequence[Rule] = (),
        messages: Rule | Limits | None = None,
        close_code: int = POLICY_VIOLATION,
        guard: Guard | None = None,
        **settings: Unpack[GuardSettings],
    ) -> None:
        check_asgi(app)
        self.app = app
        self.guard = one_of(guard, self, **settings) or Guard(**settings)
        self._rules = [self.guard.declare(rule) for rule in all_rules(limits, rules, besides=messages)]
        self._messages = [] if messages is None else [self.guard.declare(messages, name="messages")]
        self._close_code = checked_close_code(close_code)
        self._router: Any = None
        self._root = ""
        self._unmatched = UnmatchedRules([*self._rules, *self._messages], self.guard.failed)
        if self.guard.meter is not None:  # the meter counts by route, and the router below finds the routes
            self._find_router()
        pipeline = None if self._unmatched.wanted else self.guard.pipeline(self._rules, in_scope)
        self._quick = None if pipeline is None else pipeline.decide
        self._decide: Decide | None = None  # `_quick` from the first request on, so that only that one is noted
        self._unserved = warn_if_dropped(self)
        self._begun = False

    @with_advice_about_class
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if self._decide is None and not self._begun:
            self._begin(scope)
        outcome: Outcome | list[FoundKey] | None = None
        if kind == "http" and self._decide is not None and self.guard.enabled and not self.guard.filters:
            outcome = self._decide(scope)
            if type(outcome) is Admitted:  # the same as in `_answer`, earlier, because most requests end here
                scope[OUTCOME] = outcome
                await self.app(scope, receive, adding(send, outcome))
                return
        if self._unmatched.wanted:
            send = self._look(scope, send)
        if kind == "http":
            await self._answer(scope, receive, send, outcome)
        elif kind == "websocket":
            await self._connect(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    def _begin(self, scope: Scope) -> None:
        """Notes that this middleware is served, and warns if another one around it charges the same limits."""
        self._unserved.detach()
        if scope["type"] != "lifespan":
            self._begun = True
            self._decide = self._quick
            warn_if_charged_before(scope.get(OUTCOME), self.guard, self._rules)

    async def _answer(
        self, scope: Scope, receive: Receive, send: Send, outcome: Outcome | list[FoundKey] | None
    ) -> None:
        """Serves an HTTP request.

        `outcome` is the decision about the request, if it is made already. A list holds the keys found so far, and the
        guard must still decide. With None, no key has been sought yet.
        """
        if not isinstance(outcome, Outcome):
            request = AsgiRequest(scope, self.guard.addresses, self._router, self._root)
            if outcome is None:
                outcome = self.guard.at_once(request, self._rules)
            if not isinstance(outcome, Outcome):
                outcome = await self.guard.check_further(request, self._rules, outcome)
        scope[OUTCOME] = outcome
        if isinstance(outcome, Admitted):
            await self.app(scope, receive, adding(send, outcome))
        elif isinstance(outcome, RefusedByOne) and (answer := outcome.encoded()) is not None:
            status, headers, body = answer
            await send({"type": BEGINNING, "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": b"" if scope.get("method") == "HEAD" else body})
        elif outcome.allowed:
            await Sending(send, decided_once(outcome)).serve(self.app, scope, receive)
        else:
            await refuse(outcome, scope, receive, send)

    def _look(self, scope: Scope, send: Send) -> Send:
        """Logs a warning for rules whose paths match no route, at startup and again at the first request.

        Only a request shows the prefix at which the application is mounted. Returns the `send` for the application.
        """
        if self._router is None:
            self._find_router()
        router, root = self._router, self._root
        if scope["type"] != "lifespan":
            self._unmatched.look(lambda: routes_of(router), (str(scope.get("root_path") or ""), root))
            if "path_params" not in scope:
                self._unmatched.look_at_parameters(None, tuple)
            return send

        async def begun(message: Message) -> None:
            if message["type"] == "lifespan.startup.complete":
                self._unmatched.look(lambda: routes_of(router), (root,), mounted=True)
            await send(message)

        return begun

    def _find_router(self) -> None:
        self._router = router_in(self.app)
        self._root = root_of(self._router)

    async def _connect(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = AsgiRequest(scope, self.guard.addresses, self._router, self._root)
        outcome = await self.guard.check_async(request, self._rules)
        scope[OUTCOME] = outcome
        if not outcome.allowed:
            await receive()  # consumes websocket.connect, which must come before a refusal may be sent
            await refuse_connection(outcome, scope, send)
            return
        sending = Sending(send, decided_once(outcome))
        if not self._messages:
            await sending.serve(self.app, scope, receive)
            return

        connected: AsgiRequest | None = None

        async def receive_in_measure() -> Message:
            nonlocal connected
            message = await receive()
            if message["type"] == "websocket.receive":
                if connected is None:  # a new object: the router may have changed the root path in the scope
                    connected = AsgiRequest(scope, self.guard.addresses, self._router, self._root)
                ruling = await self.guard.check_async(connected, self._messages)
                ruling.finish(Response(200))
                if not ruling.allowed:
                    await sending.close(self._close_code)
                    return {"type": "websocket.disconnect", "code": self._close_code}
            return message

        await sending.serve(self.app, scope, receive_in_measure)


async def refuse(outcome: Outcome, scope: Scope, receive: Receive, send: Send) -> None:
    """Sends the response to a request that `outcome` refuses: the result of `on_breach`, or the standard refusal."""
    assert outcome.refusal is not None
    if not callable(outcome.response):
        outcome.log_unsendable("an application of ASGI, such as a Response of Starlette")
    elif await _answered_instead(outcome, scope, receive, send):
        return
    refusal = outcome.refusal
    await send({"type": "http.response.start", "status": refusal.status, "headers": encoded(refusal.fields)})
    await send({"type": "http.response.body", "body": b"" if scope.get("method") == "HEAD" else refusal.body})


async def _answered_instead(outcome: Outcome, scope: Scope, receive: Receive, send: Send) -> bool:
    """Lets the ASGI application that `on_breach` has returned send the response. Returns whether a response has begun.

    An error before the response begins is logged, and the caller sends the standard refusal. A later error is raised.
    """
    began = False

    async def begin(message: Message) -> None:
        nonlocal began
        began = True
        await send(message)

    try:
        await cast("App", outcome.response)(scope, receive, begin)
    except Exception as error:
        if began:
            raise
        outcome.guard.failed(error, "on_breach")
    return began


async def refuse_connection(outcome: Outcome, scope: Scope, send: Send) -> None:
    """Refuses a websocket before it is accepted: with a response, or by a close (403) if the server cannot send one."""
    assert outcome.refusal is not None
    if "websocket.http.response" in (scope.get("extensions") or {}):
        refusal = outcome.refusal
        head = {"status": refusal.status, "headers": encoded(refusal.fields)}
        await send({"type": "websocket.http.response.start", **head})
        await send({"type": "websocket.http.response.body", "body": refusal.body})
    else:
        await send({"type": "websocket.close", "code": TRY_AGAIN_LATER, "reason": "rate limit"})
