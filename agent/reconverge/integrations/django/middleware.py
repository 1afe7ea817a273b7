"""Limits in Django: a middleware that reads the setting RECONVERGE, and a decorator for views.

MIDDLEWARE = [..., "reconverge.integrations.django.RateLimitMiddleware"]
RECONVERGE = {"HUB": "redis://localhost:6379/0", "LIMITS": "100/minute"}
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
from collections.abc import AsyncIterable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Self, TypeVar, Unpack, cast
from weakref import WeakSet

from reconverge.arguments import with_advice
from reconverge.errors import InvalidSetting, MissingExtra, shown
from reconverge.integrations.misplaced import warn_if_uncalled
from reconverge.integrations.web.bound_rule import Declared, quotas_of_fixed
from reconverge.integrations.web.fields import LISTS, RETRY_AFTER
from reconverge.integrations.web.guard import Guard
from reconverge.integrations.web.limits_of_app import UnusedDecorators
from reconverge.integrations.web.outcome import Outcome, fields_for, go_on
from reconverge.integrations.web.refusal import PROBLEM_JSON
from reconverge.integrations.web.request.request import CANCELLED, FAILED, Response
from reconverge.integrations.web.rules import Limits, Rule, RuleSettings, check_blocking, name_of
from reconverge.integrations.wsgi import SettlingBody
from reconverge.limiter.faces.limiter import Limiter
from reconverge.runtime.log_throttle import LoggedOnce

try:
    from asgiref.sync import iscoroutinefunction, markcoroutinefunction
    from django.http import HttpResponse
    from django.http.response import HttpResponseBase
    from django.urls import get_resolver
    from django.utils.decorators import method_decorator
except ModuleNotFoundError as error:
    raise MissingExtra("the middleware for Django", error.name or "django", "django") from error

from reconverge.integrations.django.exemptions import exempt, is_exempt
from reconverge.integrations.django.request import DjangoRequest, HttpRequest
from reconverge.integrations.django.settings import UserNotLoaded, check_methods, configured
from reconverge.integrations.web.options import OF_LIMITS, rule_of

__all__ = ["DjangoRequest", "RateLimitMiddleware", "exempt", "guard", "limit", "outcome_of"]

View = TypeVar("View", bound=Callable[..., Any])

SERVING: Final = "_reconverge_serving"
"""The attribute of a request that holds its `ServingRequest`, with the outcomes so far."""
SERVED: Final = "_reconverge_served"
"""The attribute of a request that is True while the middleware serves it."""
logger = logging.getLogger("reconverge")
_logged = LoggedOnce()
_unused: Final = UnusedDecorators(
    "@limit('5/minute') above a view, or @method_decorator(limit('5/minute')) on a method"
)
LIMITED: Final[WeakSet[_LimitedView]] = WeakSet()
"""All uses of the decorator `limit` in this process."""


_OF_MIDDLEWARE: Final = {
    "get_response": (
        "is missing: this class belongs into MIDDLEWARE, and is no throttle class; for Django REST framework write a"
        " throttle class, as docs/recipes shows"
    )
}


class RateLimitMiddleware:
    """Limits the requests to a Django project by the setting RECONVERGE, under WSGI and under ASGI.

    Raises:
        ImproperlyConfigured: the setting is invalid; the message names the part.
    """

    sync_capable = True
    async_capable = True

    @with_advice(_OF_MIDDLEWARE)
    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        self.get_response = get_response
        self._waits = iscoroutinefunction(get_response)
        if self._waits:
            markcoroutinefunction(self)
        else:
            configured().check_blocking()
        configured().check_names()
        configured().check_limits(LIMITED)
        configured().log_late_user()

    def __call__(self, request: HttpRequest) -> Any:
        if self._waits:
            return self._serve_slowly(request)
        if getattr(request, SERVED, False):  # MIDDLEWARE contains it twice: the request is charged once
            return self.get_response(request)
        setattr(request, SERVED, True)
        serving = ServingRequest(request)
        with serving:
            response = serving.check_all() or self.get_response(request)
            return serving.answer(response)

    async def _serve_slowly(self, request: HttpRequest) -> Any:
        if getattr(request, SERVED, False):
            return await self.get_response(request)
        setattr(request, SERVED, True)
        serving = ServingRequest(request)
        with serving:
            response = await serving.check_slowly(_rules_for(request)) or await self.get_response(request)
            return serving.answer(response)


class ServingRequest:
    """Holds the outcomes of one request until it has a response."""

    def __init__(self, request: HttpRequest) -> None:
        self._request = request
        self.outcomes: list[Outcome] = []
        setattr(request, SERVING, self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: type[BaseException] | None, error: BaseException | None, _traceback: object) -> None:
        setattr(self._request, SERVED, False)
        if error is not None:
            gone = isinstance(error, asyncio.CancelledError | GeneratorExit)
            for outcome in self.outcomes:
                outcome.finish(Response(CANCELLED if gone else FAILED))

    def check_all(self) -> Any:
        """Checks the request by all rules in the setting RECONVERGE.

        Under WSGI, keys are read directly from the environment if possible. Returns the response to a refused request;
        None if the request may go on.
        """
        known, request = configured(), self._request
        rules, guard, decide = _rules_for(request), known.guard, known.decide
        if decide is None or not rules or guard.filters or not guard.enabled or hasattr(request, "scope"):
            return self.check(rules)
        outcome = decide(request.META)
        if not isinstance(outcome, Outcome):
            outcome = guard.check_further_blocking(DjangoRequest(request, guard.addresses), rules, outcome)
        return self._decided(outcome)

    def check(self, rules: Any) -> Any:
        """Checks the request by `rules`. Returns the response to a refused request; None if the request may go on."""
        guard = configured().guard
        return self._decided(guard.check(DjangoRequest(self._request, guard.addresses), rules))

    async def check_slowly(self, rules: Any) -> Any:
        """Checks the request by `rules`, as `check`, without blocking the event loop."""
        guard = configured().guard
        request = DjangoRequest(self._request, guard.addresses, waits=True)
        try:
            outcome = await guard.check_async(request, rules)
        except UserNotLoaded:
            await request.load_user(guard)
            outcome = await guard.check_async(request, rules)
        return self._decided(outcome)

    def _decided(self, outcome: Outcome) -> Any:
        if go_on(self.outcomes, outcome):
            return None
        if isinstance(outcome.response, HttpResponseBase):
            return outcome.response
        outcome.log_unsendable("an HttpResponse")
        refusal = outcome.refusal
        assert refusal is not None
        return HttpResponse(refusal.body, status=refusal.status, content_type=PROBLEM_JSON)

    def answer(self, response: Any) -> Any:
        """Adds the limits' fields to a response, and returns it. The costs are settled when the response has ended."""
        if not self.outcomes:
            return response
        headers = response.headers
        there = {name.lower() for name in headers}  # faster than asking `headers`, which looks up each name in Python
        for name, value in fields_for(self.outcomes, refused=RETRY_AFTER.lower() in there):
            if name.lower() not in there:
                headers[name] = value
            elif name.lower() in LISTS:
                headers[name] = f"{headers[name]}, {value}"
        unsettled = [outcome for outcome in self.outcomes if outcome.unsettled]
        if unsettled:
            _settle(response, unsettled)
        return response


class SettlingStream:
    """An asynchronous iterator over a response's body; it counts the bytes and calls `ended` when it is closed."""

    def __init__(self, parts: AsyncIterable[bytes], ended: Callable[[int, bool], None]) -> None:
        self._parts = aiter(parts)
        self._ended = ended
        self._bytes = 0
        self._complete = False

    def __aiter__(self) -> SettlingStream:
        return self

    async def __anext__(self) -> bytes:
        try:
            part = await anext(self._parts)
        except StopAsyncIteration:
            self._complete = True
            raise
        self._bytes += len(part)
        return part

    def close(self) -> None:
        """Calls `ended` with the number of bytes and whether all were sent. Django calls this at the response's end."""
        self._ended(self._bytes, self._complete)


@with_advice(OF_LIMITS)
def limit(limits: Limits, **settings: Unpack[RuleSettings]) -> Callable[[View], View]:
    """Returns a decorator that limits a view: a function, a class, or (with `method_decorator`) a method; see `Rule`.

    Each limit is named after its view, so each view has its own count. Several limits of one view, together with those
    of the middleware, are charged all or none.

    Raises:
        InvalidLimit, InvalidSetting, LimitConflict: a limit or a setting is invalid, or a name is taken.
        ImproperlyConfigured: the setting RECONVERGE is invalid.
    """
    limited = _LimitedView(rule_of(limits, settings))

    def decorate(view: View | None = None) -> View:
        _unused.used(decorate)
        if view is None:  # it is called as a class
            problem = "decorates views, and is no throttle class; write @method_decorator(limit(...), name='dispatch')"
            raise InvalidSetting("limits", limits, f"{problem} above the class")
        if not callable(view):  # a request was passed where a view belongs
            raise InvalidSetting("limits", limits, _misplaced(limits, view))
        if inspect.isclass(view):
            check_methods(limited.rule, view)
            return cast("View", method_decorator(decorate, name="dispatch")(view))
        return cast("View", limited.around(view))

    _unused.add(decorate, f"limit({shown(limits)})")
    return decorate


def _misplaced(limits: object, view: object) -> str:
    if callable(limits) and not isinstance(view, Sequence):
        return "was used without parentheses; write @limit('5/minute')"
    what = "the result of include(...)" if isinstance(view, tuple) else shown(view)
    return f"is applied to {what}, which is not a view; limit its views, or write RULES with 'PATHS': ['/below/this/*']"


def guard() -> Guard:
    """Returns the guard that the setting RECONVERGE describes, for its `stats` and `request_filter`."""
    return configured().guard


def _rules_for(request: HttpRequest) -> Sequence[Declared]:
    rules = configured().rules
    if _unused and "url_patterns" in vars(get_resolver()):  # all views are imported by now
        _unused.log()
    return () if rules and is_exempt(request) else rules


def outcome_of(request: HttpRequest) -> Outcome | None:
    """Returns the last outcome of a request; None if no limit has decided about the request."""
    serving = getattr(getattr(request, "_request", request), SERVING, None)
    return serving.outcomes[-1] if isinstance(serving, ServingRequest) and serving.outcomes else None


class _LimitedView:
    """One use of the decorator `limit`: its rule, and the views that it was applied to."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        if not isinstance(rule.limits, Limiter) and not callable(rule.limits):
            quotas_of_fixed(rule.limits)
        self._declared: dict[str, tuple[Guard, Declared]] = {}
        LIMITED.add(self)

    def around(self, view: Any) -> Any:
        """Returns a view that checks the limit, then calls `view`. For a method, Django calls this at each request."""
        bound = getattr(getattr(view, "func", view), "__self__", None)
        name = _name_of(view, bound)
        placeholder = getattr(view, "__module__", None) == method_decorator.__module__
        if self.rule.name is not None or not placeholder:
            self._of(name)
        if iscoroutinefunction(view) or getattr(bound, "view_is_async", False):

            @functools.wraps(view)
            async def limited_slowly(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
                with _serving(request) as (serving, answer):
                    response = await serving.check_slowly([self._of(name)])
                    if response is None:
                        response = await view(request, *args, **kwargs)
                    return answer(response)

            return self._watched(limited_slowly, placeholder, name)
        if not placeholder:
            check_blocking(self.rule, f"the synchronous view of {name}")

        @functools.wraps(view)
        def limited(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            with _serving(request) as (serving, answer):
                response = serving.check([self._of(name)])
                if response is None:
                    response = view(request, *args, **kwargs)
                return answer(response)

        return self._watched(limited, placeholder, name)

    def _watched(self, limited: Any, placeholder: bool, name: str) -> Any:  # noqa: FBT001  # private
        """Returns a limited view. A warning is logged if it is dropped before any request; a method's always is."""
        limiter = None if placeholder else self._of(name).only_limiter
        if limiter is not None:
            warn_if_uncalled(limited, limiter, "limit")
        return limited

    def _of(self, name: str) -> Declared:
        """Returns the rule for the view called `name`, declared to the guard in use; declares it at the first call.

        If a test changes the setting RECONVERGE, another guard is in use, and the rule is declared again.
        """
        guard = configured().guard
        known = self._declared.get(name)
        if known is None or known[0] is not guard:
            known = self._declared[name] = guard, guard.declare(self.rule, name=name, shown=self.rule.name is not None)
        return known[1]


@contextmanager
def _serving(request: HttpRequest) -> Iterator[tuple[ServingRequest, Callable[[Any], Any]]]:
    """Yields an object with the outcomes of a request so far, and a function that completes its response.

    Only the function for the outermost limit of the request adds fields and settles costs; for inner limits, it returns
    the response unchanged.
    """
    request = getattr(request, "_request", request)  # the request that Django REST framework wraps
    if not hasattr(request, "META"):
        problem = f"a limited view must take the request first, not {type(request).__name__}"
        raise TypeError(f"{problem}; limit a method with method_decorator(limit(...))")
    before = getattr(request, SERVING, None)
    if isinstance(before, ServingRequest):
        yield before, lambda response: response
    else:
        if configured().rules:
            _log_unserved()
        with ServingRequest(request) as serving:
            yield serving, serving.answer


def _log_unserved() -> None:
    """Logs a warning, once, that a request has reached a view without the middleware, which checks LIMITS and RULES."""
    if _logged.is_new():
        logger.warning(
            "reconverge: RECONVERGE has LIMITS or RULES, and a request came to a view without the middleware that"
            " obeys them; add 'reconverge.integrations.django.RateLimitMiddleware' to MIDDLEWARE"
        )


def _name_of(view: Any, bound: object) -> str:
    """Returns the name for the limit of a view, made from the view's own name.

    If the view is a method of the object `bound`, the name begins with that object's class, even if the method is
    inherited.
    """
    if bound is not None:
        own = name_of(type(bound))
        return own if view.__name__ == "dispatch" else f"{own}.{view.__name__}"
    return name_of(getattr(view, "view_class", view))


def _settle(response: Any, unsettled: Sequence[Outcome]) -> None:
    """Settles the costs of outcomes when `response` has ended; at once if its whole body is in memory already."""

    def ended(bytes_sent: int, complete: bool) -> None:  # noqa: FBT001  # as `SettlingBody` calls it
        headers = {name.lower(): value for name, value in response.items()}
        for outcome in unsettled:
            outcome.finish(Response(response.status_code, headers, bytes_sent, complete, response))

    if getattr(response, "file_to_stream", None) is not None:
        close = response.close

        def close_and_settle() -> None:
            close()
            ended(int(response.headers.get("Content-Length", 0)), True)  # noqa: FBT003  # likewise

        # The server may send the file itself, so the end of the stream may never come, but `close` is called.
        response.close = close_and_settle
    elif response.streaming:
        body = SettlingStream if response.is_async else SettlingBody
        response.streaming_content = body(response.streaming_content, ended)
    elif not getattr(response, "is_rendered", True):
        response.add_post_render_callback(lambda rendered: ended(len(rendered.content), True))  # noqa: FBT003  # likewise
    else:
        ended(len(response.content), True)  # noqa: FBT003  # likewise
