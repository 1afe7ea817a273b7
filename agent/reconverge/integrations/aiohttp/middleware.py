"""Limits in an aiohttp server: a middleware, a decorator for handlers, and fields on all responses.

limits = Limits("100/minute", agent="redis://localhost:6379/0")
limits.install(app)
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final, NoReturn, TypeAlias, TypeVar, Unpack, cast

from reconverge.errors import InvalidSetting, MissingExtra, shown
from reconverge.integrations.asgi.middleware import CLOSE_CODES, POLICY_VIOLATION
from reconverge.integrations.web.bound_rule import Declared
from reconverge.integrations.web.fields import LISTS, RETRY_AFTER
from reconverge.integrations.web.guard import Guard
from reconverge.integrations.web.options import GuardSettings, one_of, rule_of
from reconverge.integrations.web.outcome import Outcome, fields_for, go_on
from reconverge.integrations.web.pipeline import Decide
from reconverge.integrations.web.request.request import CANCELLED, FAILED, Response
from reconverge.integrations.web.rules import Limits as RuleLimits
from reconverge.integrations.web.rules import Rule, RuleSettings, all_rules
from reconverge.integrations.web.unmatched import UnmatchedRules

try:
    from aiohttp import WSMessage, web

    from reconverge.integrations.aiohttp.request import AiohttpRequest
    from reconverge.integrations.aiohttp.request_keys import in_request
    from reconverge.integrations.aiohttp.routes import handled_in, mount_of, routes_of, warn_of_unmatched
except ModuleNotFoundError as error:
    raise MissingExtra("the middleware for aiohttp", error.name or "aiohttp", "aiohttp") from error

WRITE: Final = "write @limits.limit('5/minute')"
Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]
AnyHandler = TypeVar("AnyHandler", bound=Callable[..., Awaitable[web.StreamResponse]])

_make_key: Any = getattr(web, "RequestKey", None)
SERVING: Final[Any] = "reconverge.serving" if _make_key is None else _make_key("reconverge.serving", object)
"""The key of a request's outcomes so far."""
MESSAGING: Final[Any] = "reconverge.messaging" if _make_key is None else _make_key("reconverge.messaging", object)
"""Under which the request of a websocket has what the limits of its messages have read of it: once for all of them."""


class Limits:
    """Limits what goes to an aiohttp server: requests, streams and the connections of websockets.

    Args:
        limits: of all requests together, for each key; see `Rule.limits`.
        rules: further limits, of requests to some paths, say.
        guard: what the limits have in common; or its settings, such as `agent`, one by one.

    Raises:
        InvalidLimit, InvalidSetting, LimitConflict: see `Guard`.
    """

    def __init__(
        self,
        limits: RuleLimits | None = None,
        *,
        rules: Sequence[Rule] = (),
        guard: Guard | None = None,
        **settings: Unpack[GuardSettings],
    ) -> None:
        guard = one_of(guard, **settings)
        settings.setdefault("passes", (web.HTTPException,))
        self.guard = guard or Guard(**settings)
        self._rules = [self.guard.declare(rule) for rule in all_rules(limits, rules, besides=self.limit)]
        self._unmatched = UnmatchedRules(self._rules, self.guard.failed)
        self._handlers: list[tuple[object, Declared]] = []
        self._looked = False
        decide = self._deciding(self._rules)

        @web.middleware
        async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
            return await self._serve(request, self._rules, decide, functools.partial(handler, request))

        self.middleware = middleware
        """The middleware itself, for an application that orders its middlewares; `add_fields` adds the fields."""

    def install(self, app: web.Application) -> None:
        """Limit an application, with all that is mounted in it; before the middlewares that it has so far."""
        if not isinstance(app, web.Application):
            raise InvalidSetting("app", app, "is no web.Application of aiohttp; write limits.install(app)")
        if self.middleware in app.middlewares and self.add_fields in app.on_response_prepare:
            return  # once is enough: a request would be charged twice
        app.middlewares.insert(0, self.middleware)
        app.on_startup.append(self._look)
        app.on_response_prepare.append(self.add_fields)

    async def _look(self, app: web.Application) -> None:
        """Look whether the paths of rules lead anywhere: all routes are there when the application begins.

        If it is mounted itself, the prefix is in all of its routes, and the first request shows it.
        """
        self._unmatched.look(lambda: list(routes_of(app)), nested=True)
        self._look_at_handlers(app)

    def _look_at_handlers(self, app: web.Application) -> None:
        """Compare the rules of handlers with the routes that lead to these."""
        self._looked = True
        routes = list(handled_in(app))
        warn_of_unmatched(app, [handler for handler, _ in self._handlers])
        for handler, declared in self._handlers:
            led = [route for each, route in routes if each is handler]
            if led:
                UnmatchedRules([declared], self.guard.failed, views=True).look(
                    functools.partial(list, led), nested=True
                )

    def limit(self, limits: RuleLimits, **settings: Unpack[RuleSettings]) -> Callable[[AnyHandler], AnyHandler]:
        """Limit a handler: a coroutine function, or a method of a `View`; see `Rule`.

        The limit is named after the handler, so each counts on its own. Several limits of one handler, and what the
        middleware has charged, are charged together, or none.

        Raises:
            InvalidLimit, InvalidSetting, LimitConflict: see `Guard`.
        """
        rule = rule_of(limits, settings)

        def decorate(handler: AnyHandler) -> AnyHandler:
            if not callable(handler):  # but a request: it stands in the place of the handler
                raise InvalidSetting("limits", limits, _misplaced(limits, handler))
            declared = self.guard.declare(rule, owner=handler)
            decide = self._deciding([declared])

            @functools.wraps(handler)
            async def limited(*args: Any, **kwargs: Any) -> web.StreamResponse:
                handle = functools.partial(handler, *args, **kwargs)
                return await self._serve(_request_in(args), [declared], decide, handle)

            self._handlers.append((limited, declared))
            return cast("AnyHandler", limited)

        return decorate

    def __call__(self, handler: object) -> NoReturn:
        """No decorator. Raises InvalidSetting."""
        raise InvalidSetting("limits", handler, f"Limits is no decorator itself; {WRITE}")

    def messages(
        self, limits: RuleLimits, *, close_code: int = POLICY_VIOLATION, **settings: Unpack[RuleSettings]
    ) -> Messages:
        """Limit the messages that come through websockets, for each key and all its connections; see `Rule`.

        Args:
            limits: see `Rule.limits`.
            close_code: with which a websocket is closed over which too many come: 1008, or 1013 (try again later).
            settings: see `Rule`; without a `name` the limit is called `messages`.

        Raises:
            InvalidLimit, InvalidSetting, LimitConflict: see `Guard`.
        """
        if close_code not in CLOSE_CODES:
            raise InvalidSetting(
                "close_code", close_code, "is neither 1008 (against the policy) nor 1013 (try again later)"
            )
        rule = rule_of(limits, settings)
        return Messages(self.guard, self.guard.declare(rule, name="messages"), close_code)

    def request_filter(self, function: Any) -> Any:
        """Let those requests pass for which `function` is true; a decorator, too."""
        return self.guard.request_filter(function)

    async def add_fields(self, request: web.Request, response: web.StreamResponse) -> None:
        """Add the fields of the limits to a response, however it was made; a handler of `on_response_prepare`."""
        serving = request.get(SERVING)
        if isinstance(serving, _Serving):
            serving.add_fields(response)

    def _deciding(self, rules: Sequence[Declared]) -> Decide | None:
        """A function that decides by rules about aiohttp's own request; None if they have to be asked."""
        pipeline = self.guard.pipeline(rules, in_request)
        return None if pipeline is None else pipeline.decide

    async def _serve(
        self,
        request: web.Request,
        rules: Sequence[Declared],
        decide: Decide | None,
        handle: Callable[[], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        """Check a request by these rules; if another middleware is serving it already, that one ends the request."""
        serving = request.get(SERVING)
        if isinstance(serving, _Serving):
            return await self._check(serving, request, rules, decide) or await handle()
        serving = request[SERVING] = _Serving()
        try:
            response = await self._check(serving, request, rules, decide) or await handle()
            if serving.unsettled:
                await serving.settle(response)
            if not response.prepared:
                serving.add_fields(response)
        except BaseException as error:
            serving.failed(request, error)
            raise
        return response

    async def _check(
        self, serving: _Serving, request: web.Request, rules: Sequence[Declared], decide: Decide | None
    ) -> web.StreamResponse | None:
        """The response to a request that may not go on, None if it may."""
        if not rules:
            return None
        guard = self.guard
        if self._unmatched.wanted and rules is self._rules:
            self._unmatched.look(lambda: list(routes_of(request.app)), (mount_of(request),))
        if not self._looked and self._handlers:  # in an application that is limited by its handlers alone
            self._look_at_handlers(request.match_info.apps[0])
        found = None if decide is None or guard.filters or not guard.enabled else decide(request)
        if isinstance(found, Outcome):
            return serving.decided(found)
        each = AiohttpRequest(request, guard.addresses, mount_of(request))
        further = guard.at_once(each, rules) if found is None else found
        if isinstance(further, Outcome):
            return serving.decided(further)
        return serving.decided(await guard.check_further(each, rules, further))


class Messages:
    """The messages of a websocket, as long as there are not too many: `async for message in messages(request, socket)`.

    Then it is closed, and there are no more. `Limits.messages` makes it.
    """

    def __init__(self, guard: Guard, declared: Declared, close_code: int) -> None:
        self._guard = guard
        self._rules = [declared]
        self._close_code = close_code

    async def __call__(self, request: web.Request, socket: web.WebSocketResponse) -> AsyncIterator[WSMessage]:
        """Iterates over the messages of an open websocket, and closes it when one is refused."""
        async for message in socket:
            if not await self.check(request):
                await socket.close(code=self._close_code, message=b"rate limit")
                return
            yield message

    async def check(self, request: web.Request) -> Outcome:
        """Count one message, for handlers that receive and close themselves. False if there are too many."""
        each = request.get(MESSAGING)
        if not isinstance(each, AiohttpRequest):
            each = request[MESSAGING] = AiohttpRequest(request, self._guard.addresses)
        outcome = await self._guard.check_async(each, self._rules)
        outcome.finish(Response(200))
        return outcome


def outcome_of(request: web.Request) -> Outcome | None:
    """Returns the last outcome of a request; None if nothing was decided."""
    serving = request.get(SERVING)
    return serving.outcomes[-1] if isinstance(serving, _Serving) and serving.outcomes else None


class _Serving:
    """Holds the outcomes of one request until it is answered."""

    __slots__ = ("_has_fields", "outcomes", "unsettled")

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []
        self.unsettled = False
        """Whether anything depends on the response."""
        self._has_fields: web.StreamResponse | None = None

    def failed(self, request: web.Request, error: BaseException) -> None:
        """Settle a request whose handler has raised an error, which may be a response."""
        if isinstance(error, web.HTTPException):
            if self.unsettled:
                self._settle_by(error)
            if not error.prepared:
                self.add_fields(error)
            return
        gone = request.transport is None or isinstance(error, asyncio.CancelledError | GeneratorExit)
        self._finish(Response(CANCELLED if gone else FAILED, complete=False))

    def decided(self, outcome: Outcome) -> web.StreamResponse | None:
        """Note an outcome; returns the response to a request that may not go on, None if it may."""
        self.unsettled = self.unsettled or outcome.unsettled
        if go_on(self.outcomes, outcome):
            return None
        if isinstance(outcome.response, web.StreamResponse):
            return outcome.response
        refusal = outcome.refusal
        assert refusal is not None
        head = {name: value for name, value in refusal.fields if name.lower() == "content-type"}
        return web.Response(body=refusal.body, status=refusal.status, headers=head)

    async def settle(self, response: web.StreamResponse) -> None:
        """Settle by a response. A stream is ended before, as aiohttp would do next; any other is about to be sent."""
        if response.prepared and not isinstance(response, web.WebSocketResponse):
            try:
                await response.write_eof()
            except ConnectionError:  # aiohttp will meet it, too
                self._finish(Response(CANCELLED, complete=False))
        self._settle_by(response)

    def _settle_by(self, response: web.StreamResponse) -> None:
        headers = {name.lower(): value for name, value in response.headers.items()}
        size = response.body_length if response.prepared else response.content_length or 0
        self._finish(Response(response.status, headers, size, raw=response))

    def add_fields(self, response: web.StreamResponse) -> None:
        """Add the fields to the head of a response, once."""
        if self._has_fields is response:
            return
        self._has_fields = response
        headers = response.headers
        for name, value in fields_for(self.outcomes, refused=RETRY_AFTER in headers):
            if name.lower() in LISTS or name not in headers:
                headers.add(name, value)

    def _finish(self, response: Response) -> None:
        for outcome in self.outcomes:
            outcome.finish(response)


def _misplaced(limits: object, handler: object) -> str:
    if callable(limits):
        return f"stands above a handler without parentheses; {WRITE}"
    return f"is put on {shown(handler)}, which is no handler; {WRITE}"


def _request_in(args: tuple[Any, ...]) -> web.Request:
    """The request that a handler was given: its only argument, or that of the view whose method it is."""
    for each in args:
        if isinstance(each, web.Request):
            return each
        if isinstance(each, web.View):
            return each.request
    raise TypeError("a limited handler takes the request, or is a method of an aiohttp.web.View")
