"""Looks whether a middleware is put around an application of its own kind: ASGI or WSGI."""

from __future__ import annotations

from typing import Any

from reconverge.errors import InvalidSetting
from reconverge.integrations.web.request.keys import takes, waits


def check_asgi(app: Any) -> None:
    """Raise InvalidSetting for an application of WSGI: it would fail with the first request."""
    if hasattr(app, "wsgi_app") or (callable(app) and takes(app, 2) and not takes(app, 3)):
        raise InvalidSetting(
            "app", app, "is an application of WSGI; put RateLimitMiddleware of reconverge.integrations.wsgi around it"
        )


def check_wsgi(app: Any) -> None:
    """Raise InvalidSetting for an application of ASGI: it would fail with the first request."""
    if callable(app) and (waits(app) or (takes(app, 3) and not takes(app, 2))):
        raise InvalidSetting(
            "app", app, "is an application of ASGI; put RateLimitMiddleware of reconverge.integrations.asgi around it"
        )
