"""Limits in an aiohttp server: a middleware, a decorator for handlers, and limits of websockets' messages.

limits = Limits("100/minute", agent="redis://localhost:6379/0")
limits.install(app)
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Final, NoReturn, TypeAlias, TypeVar, Unpack, cast

from reconverge.arguments import with_advice
from reconverge.errors import InvalidSetting, MissingExtra, shown
from reconverge.integrations.asgi.middleware import POLICY_VIOLATION, checked_close_code
from reconverge.integrations.misplaced import warn_if_not_installed, warn_if_registered
from reconverge.integrations.web.bound_rule import Declared
from reconverge.integrations.web.fields import LISTS, RETRY_AFTER
from reconverge.integrations.web.guard import Guard
from reconverge.integrations.web.limits_of_app import LimitsOfApp, UnusedDecorators
from reconverge.integrations.web.options import OF_LIMITS, GuardSettings, one_of, rule_of
from reconverge.integrations.web.outcome import Outcome, fields_for, go_on
from reconverge.integrations.web.pipeline import Decide
from reconverge.integrations.web.request.request import CANCELLED, FAILED, Response
from reconverge.integrations.web.rules import Limits as RuleLimits
from reconverge.integrations.web.rules import Rule, RuleSettings, all_rules
from reconverge.integrations.web.unmatched import UnmatchedRules
from reconverge.limiter.awaiting import undecided

try:
    from aiohttp import WSMessage, web

    from reconverge.integrations.aiohttp.request import AiohttpRequest
    from reconverge.integrations.aiohttp.request_keys import in_request
    from reconverge.integrations.aiohttp.routes import check_handlers, handled_in, has_served, mount_of, routes_of
except ModuleNotFoundError as error:
    raise MissingExtra("the middleware for aiohttp", error.name or "aiohttp", "aiohttp") from error

logger = logging.getLogger("reconverge")

WRITE: Final = "write @limits.limit('5/minute')"
Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]
AnyHandler = TypeVar("AnyHandler", bound=Callable[..., Awaitable[web.StreamResponse]])

_make_key: Any = getattr(web, "RequestKey", None)
SERVING: Final[Any] = "reconverge.serving" if _make_key is None else _make_key("reconverge.serving", object)
"""The key under which an aiohttp request holds its `_Serving`, with the outcomes so far."""
MESSAGING: Final[Any] = "reconverge.messaging" if _make_key is None else _make_key("reconverge.messaging", object)
"""The key under which a websocket's request holds the `AiohttpRequest` that the limits of its messages share."""


@with_advice(OF_LIMITS)
class Limits(LimitsOfApp):
    """Limits the requests to an aiohttp server, streams and new websocket connections included.

    Args:
        limits: the limits of all requests together, counted per key; see `Rule.limits`.
        rules: further limits, for example of requests to some paths.
        guard: the settings that all the limits share; or give these settings, such as `agent`, as keyword arguments.

    Raises:
        InvalidLimit, InvalidSetting, LimitConflict: a limit or a setting is invalid, or a name is taken.
    """

    def __init__(
        self,
        limits: RuleLimits | None = None,
        *,
        rules: Sequence[Rule] = (),
        guard: Guard | None = None,
        **settings: Unpack[GuardSettings],
    ) -> None:
        guard = one_of(guard, self, **settings)
        settings.setdefault("passes", (web.HTTPException,))
        self.guard = guard or Guard(**settings)
        self._rules = [self.guard.declare(rule) for rule in all_rules(limits, rules, besides=self.limit)]
        self._unmatched = UnmatchedRules(self._rules, self.guard.failed)
        self._handlers: list[tuple[object, Declared]] = []
        self._unused = UnusedDecorators("@limits.limit('5/minute') below @routes.get(path)")
        self._looked = False
        decide = self._deciding(self._rules)

        @web.middleware
        def middleware(request: Any = None, handler: Any = None) -> Awaitable[web.StreamResponse]:
            if handler is None:
                problem = "is the middleware itself; leave the last () out, as in middlewares=[limits.middleware]"
                raise InvalidSetting("middleware", self, problem)
            return self._serve(request, self._rules, decide, functools.partial(handler, request))

        self._middleware = middleware
        names = ", ".join(declared.name for declared in self._rules)
        self._missing = warn_if_not_installed(self, names, has_served) if names else None

    @property
    def middleware(self) -> Any:
        """The middleware that `install` adds, for applications that order their middlewares themselves.

        They must also append `add_fields` to `app.on_response_prepare`.
        """
        if self._missing is not None:
            self._missing.detach()
        return self._middleware

    def install(self, app: web.Application) -> None:
        """Limits an application and its sub-applications, by adding the outermost middleware.

        Raises InvalidSetting if `app` is not an aiohttp application, or has begun to serve.
        """
        if not isinstance(app, web.Application):
            raise InvalidSetting("app", app, "is not an aiohttp.web.Application; write limits.install(app)")
        if self.middleware in app.middlewares and self.add_fields in app.on_response_prepare:
            return  # a second middleware would charge each request twice
        if app.middlewares.frozen or app.on_startup.frozen:
            problem = "has begun to serve, and takes no middleware any more; call limits.install(app) where it is made"
            raise InvalidSetting("app", app, problem)
        app.middlewares.insert(0, self.middleware)
        app.on_startup.append(self._look)
        app.on_response_prepare.append(self.add_fields)

    async def _look(self, app: web.Application) -> None:
        """Logs a warning at startup for each rule whose paths match no route of the application.

        The check is repeated at the first request, when the prefix of a mounted sub-application is known.
        """
        self._unmatched.look(lambda: list(routes_of(app)), nested=True)
        self._look_at_handlers(app)

    def _log_missing(self) -> None:
        if self._missing is not None:
            self._missing.detach()
        logger.warning(
            "reconverge: the limits %s limit nothing, and only decorated handlers are limited: the application lacks "
            "the middleware; write limits.install(app)",
            ", ".join(declared.name for declared in self._rules),
        )

    def _look_at_handlers(self, app: web.Application) -> None:
        routes = list(handled_in(app))
        self._unused.log()
        check_handlers(app, [handler for handler, _ in self._handlers])
        self._looked = True
        for handler, declared in self._handlers:
            led = [route for each, route in routes if each is handler]
            if led:
                UnmatchedRules([declared], self.guard.failed, views=True).look(
                    functools.partial(list, led), nested=True
                )

    @with_advice(OF_LIMITS)
    def limit(self, limits: RuleLimits, **settings: Unpack[RuleSettings]) -> Callable[[AnyHandler], AnyHandler]:
        """Returns a decorator that limits a handler: a coroutine function, or a method of a `View`; see `Rule`.

        Each limit is named after its handler, so each handler has its own count. Several limits of one handler,
        together with those of the middleware, are charged all or none.

        Raises:
            InvalidLimit, InvalidSetting, LimitConflict: a limit or a setting is invalid, or a name is taken.
        """
        rule = rule_of(limits, settings)

        def decorate(handler: AnyHandler) -> AnyHandler:
            self._unused.used(decorate)
            if not callable(handler):  # a request was passed where a handler belongs
                raise InvalidSetting("limits", limits, _misplaced(limits, handler))
            here = inspect.currentframe()
            warn_if_registered(handler, here and here.f_back, "@limits.limit")
            declared = self.guard.declare(rule, owner=handler)
            decide = self._deciding([declared])

            @functools.wraps(handler)
            async def limited(*args: Any, **kwargs: Any) -> web.StreamResponse:
                handle = functools.partial(handler, *args, **kwargs)
                return await self._serve(_request_in(args), [declared], decide, handle)

            self._handlers.append((limited, declared))
            return cast("AnyHandler", limited)

        self._unused.add(decorate, f"limit({shown(limits)})")
        return decorate

    def __call__(self, handler: object, *more: object) -> NoReturn:
        """Always raises InvalidSetting: `Limits` is neither a decorator, which `limit` returns, nor a middleware."""
        if more:
            problem = "is no middleware itself; write limits.install(app), and leave it out of middlewares="
            raise InvalidSetting("middlewares", self, problem)
        raise InvalidSetting("limits", handler, f"Limits itself is not a decorator; {WRITE}")

    @with_advice(OF_LIMITS)
    def messages(
        self, limits: RuleLimits, *, close_code: int = POLICY_VIOLATION, **settings: Unpack[RuleSettings]
    ) -> Messages:
        """Limits clients' messages through websockets; all connections of one key share a count. See `Rule`.

        Args:
            limits: see `Rule.limits`.
            close_code: the code that closes a websocket with too many messages: 1008, or 1013 (try again later).
            settings: see `Rule`; without a `name` the limit is called `messages`.

        Raises:
            InvalidLimit, InvalidSetting, LimitConflict: a limit or a setting is invalid, or a name is taken.
        """
        rule = rule_of(limits, settings)
        return Messages(self.guard, self.guard.declare(rule, name="messages"), checked_close_code(close_code))

    def _outcomes_of(self, request: web.Request) -> Sequence[Outcome]:
        serving = request.get(SERVING)
        return serving.outcomes if isinstance(serving, _Serving) else ()

    async def add_fields(self, request: web.Request, response: web.StreamResponse) -> None:
        """Adds the limits' header fields to the response to a request; a handler for `app.on_response_prepare`."""
        serving = request.get(SERVING)
        if isinstance(serving, _Serving):
            serving.add_fields(response)

    def _deciding(self, rules: Sequence[Declared]) -> Decide | None:
        """Returns a function that decides by `rules` about aiohttp's own request; None if they have no fast path."""
        pipeline = self.guard.pipeline(rules, in_request)
        return None if pipeline is None else pipeline.decide

    async def _serve(
        self,
        request: web.Request,
        rules: Sequence[Declared],
        decide: Decide | None,
        handle: Callable[[], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        """Checks a request by `rules` and calls `handle`, its handler. Returns the response with the limits' fields.

        Settles the costs afterwards. If this call is inside another one for the same request (of the middleware, or of
        a decorator), the outer call settles the costs and adds the fields.
        """
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
        """Checks a request by `rules`. Returns the response to a refused request; None if the request may go on."""
        if not rules:
            return None
        guard = self.guard
        if self._unmatched.wanted and rules is self._rules:
            self._unmatched.look(lambda: list(routes_of(request.app)), (mount_of(request),))
        if not self._looked and self._handlers:  # a limited handler in an application without the middleware
            if self._rules and rules is not self._rules:
                self._log_missing()
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
    """Iterates over a websocket's messages until there are too many: `async for message in messages(request, socket)`.

    With the first refused message the websocket is closed and the iteration ends. `Limits.messages` makes this object.
    """

    def __init__(self, guard: Guard, declared: Declared, close_code: int) -> None:
        self._guard = guard
        self._rules = [declared]
        self._close_code = close_code

    def __aiter__(self) -> NoReturn:
        raise TypeError("messages belong to a websocket; write: async for message in messages(request, socket)")

    async def __call__(self, request: web.Request, socket: web.WebSocketResponse) -> AsyncIterator[WSMessage]:
        """Yields the messages of an open websocket, and closes the websocket when a message is refused."""
        if not isinstance(socket, web.WebSocketResponse):
            raise InvalidSetting("socket", socket, "is no WebSocketResponse; write messages(request, socket)")
        async for message in socket:
            if not await self.check(request):
                await socket.close(code=self._close_code, message=b"rate limit")
                return
            yield message

    @undecided
    async def check(self, request: web.Request) -> Outcome:
        """Counts one message of the websocket that `request` opened, for handlers that receive and close by themselves.

        The returned outcome is false if the message is refused.
        """
        each = request.get(MESSAGING)
        if not isinstance(each, AiohttpRequest):
            each = request[MESSAGING] = AiohttpRequest(request, self._guard.addresses)
        outcome = await self._guard.check_async(each, self._rules)
        outcome.finish(Response(200))
        return outcome


def outcome_of(request: web.Request) -> Outcome | None:
    """Returns the last outcome of a request; None if no limit has decided about the request."""
    serving = request.get(SERVING)
    return serving.outcomes[-1] if isinstance(serving, _Serving) and serving.outcomes else None


class _Serving:
    """Holds the outcomes of one request until its response has been sent."""

    __slots__ = ("_has_fields", "outcomes", "unsettled")

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []
        self.unsettled = False
        """Whether the cost of an outcome depends on the response and must still be settled."""
        self._has_fields: web.StreamResponse | None = None

    def failed(self, request: web.Request, error: BaseException) -> None:
        """Settles the costs of a request whose handler raised an error; an HTTPException counts as a response."""
        if isinstance(error, web.HTTPException):
            if self.unsettled:
                self._settle_by(error)
            if not error.prepared:
                self.add_fields(error)
            return
        gone = request.transport is None or isinstance(error, asyncio.CancelledError | GeneratorExit)
        self._finish(Response(CANCELLED if gone else FAILED, complete=False))

    def decided(self, outcome: Outcome) -> web.StreamResponse | None:
        """Stores an outcome. Returns the response to a refused request; None if the request is admitted."""
        self.unsettled = self.unsettled or outcome.unsettled
        if go_on(self.outcomes, outcome):
            return None
        if isinstance(outcome.response, web.StreamResponse):
            return outcome.response
        outcome.log_unsendable("a web.Response")
        refusal = outcome.refusal
        assert refusal is not None
        head = {name: value for name, value in refusal.fields if name.lower() == "content-type"}
        return web.Response(body=refusal.body, status=refusal.status, headers=head)

    async def settle(self, response: web.StreamResponse) -> None:
        """Settles the costs of the request by its response.

        A streamed response is ended first, as aiohttp itself would do after this call. Any other response has not been
        sent yet.
        """
        if response.prepared and not isinstance(response, web.WebSocketResponse):
            try:
                await response.write_eof()
            except ConnectionError:  # aiohttp will get this error, too
                self._finish(Response(CANCELLED, complete=False))
        self._settle_by(response)

    def _settle_by(self, response: web.StreamResponse) -> None:
        headers = {name.lower(): value for name, value in response.headers.items()}
        size = response.body_length if response.prepared else response.content_length or 0
        self._finish(Response(response.status, headers, size, raw=response))

    def add_fields(self, response: web.StreamResponse) -> None:
        """Adds the header fields of the outcomes to `response`; a second call for the same response adds nothing."""
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
    for each in args:
        if isinstance(each, web.Request):
            return each
        if isinstance(each, web.View):
            return each.request
    kinds = ", ".join(type(each).__name__ for each in args) or "nothing"
    problem = "a limited handler must take the request as an argument, or be a method of an aiohttp.web.View"
    raise TypeError(f"{problem}; this handler was called with {kinds}")
