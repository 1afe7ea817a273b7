"""Views of Django that the middleware does not limit."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.urls import get_resolver, resolve
from django.utils.decorators import method_decorator

from reconverge.arguments import with_advice
from reconverge.runtime.threads import Latch

View = TypeVar("View", bound=Callable[..., Any])

EXEMPT: Final = "_reconverge_exempt"
"""The attribute that marks a view as exempt from the middleware."""
_used = Latch()
"""Set once any view is exempt. Only then does the middleware resolve the URL of each request to its view."""
_imported: Final[list[object]] = [None]
"""A list of one item: the last URL resolver whose views are all imported, so that all exempt views are known."""


@with_advice({"view": "is missing; write @exempt without parentheses"})
def exempt(view: View) -> View:
    """Exempts a view from all limits of the middleware; a decorator for functions and classes.

    Like Django's `csrf_exempt`, it returns a new view and leaves the given one unchanged. Limits on the view itself
    still apply. If any view is exempt, the middleware resolves the URL of each request, as Django does again later.
    """
    if inspect.isclass(view):
        return cast("View", method_decorator(exempt, name="dispatch")(view))

    @functools.wraps(view)
    def free(*args: Any, **kwargs: Any) -> Any:
        return view(*args, **kwargs)

    if iscoroutinefunction(view):
        markcoroutinefunction(free)
    setattr(free, EXEMPT, True)
    _used.set()
    return cast("View", free)


def is_exempt(request: Any) -> bool:
    """Returns whether a request leads to an exempt view; False if its URL cannot be resolved."""
    urlconf = getattr(request, "urlconf", None)
    try:
        resolver = get_resolver(urlconf)
        if resolver is not _imported[0]:
            _ = resolver.url_patterns  # reading these imports all views, and so shows whether any is exempt
            _imported[0] = resolver
        return _used.open and bool(getattr(resolve(request.path_info, urlconf).func, EXEMPT, False))
    except Exception:  # noqa: BLE001  # Django will get this error, too
        return False
