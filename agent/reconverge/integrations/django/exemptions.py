"""Views of Django that the middleware leaves alone."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.urls import get_resolver, resolve
from django.utils.decorators import method_decorator

from reconverge.runtime.threads import Latch

View = TypeVar("View", bound=Callable[..., Any])

EXEMPT: Final = "_reconverge_exempt"
"""Of a view: the middleware leaves it alone."""
_used = Latch()
"""Whether there is any such view, for which it is worth while to look where a request leads."""
_imported: Final[list[object]] = [None]
"""The last resolver of a URL: its views are imported, so a look into it finds no exempt view that is new."""


def exempt(view: View) -> View:
    """Leave a view out of all that the middleware limits; a decorator for functions and classes.

    As Django's `csrf_exempt`, it makes another view and leaves this one as it is. Limits of its own go on. Where any
    view is exempt, the middleware looks for the view of each request, as Django does after it.
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
    """Whether a request leads to such a view. What leads nowhere does not, nor what fails, as it will once more."""
    urlconf = getattr(request, "urlconf", None)
    try:
        resolver = get_resolver(urlconf)
        if resolver is not _imported[0]:
            _ = resolver.url_patterns  # with these all views are imported, and so it is known whether any is exempt
            _imported[0] = resolver
        return _used.open and bool(getattr(resolve(request.path_info, urlconf).func, EXEMPT, False))
    except Exception:  # noqa: BLE001  # Django will meet it, too
        return False
