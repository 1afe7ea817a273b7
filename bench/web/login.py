"""A page for logins behind one limiter, for gunicorn: `bench.web.login:page()`.

`BENCH_LIMITER` names the limiter; `BENCH_REDIS` is the port of the Redis, `BENCH_QUOTA` the limit of each user.
"""

from __future__ import annotations

import logging
import os
from typing import Any, Final

from bench.decisions.peers import peer

OURS: Final = "reconverge"
ADMITTING: Final = "reconverge, when_hub_is_away=admit"
FALLING_BACK: Final = "Flask-Limiter with its memory as fallback"
THEIRS: Final = "Flask-Limiter"
LIMITERS: Final = (OURS, ADMITTING, FALLING_BACK, THEIRS)


def page() -> Any:
    """Returns the application. The user of a request stands in its field `User`."""
    logging.disable()  # the outage is on purpose
    limiter, quota = os.environ["BENCH_LIMITER"], os.environ["BENCH_QUOTA"]
    redis = f"redis://127.0.0.1:{os.environ['BENCH_REDIS']}/0"
    flask = peer("flask")
    app = flask.Flask("login")

    def user() -> str:
        return str(flask.request.headers["User"])

    def login() -> str:
        return "welcome"

    if limiter in (OURS, ADMITTING):
        from reconverge import Agent  # noqa: PLC0415  # the pages of other limiters do without it
        from reconverge.integrations.flask import Limits  # noqa: PLC0415

        away = "admit" if limiter == ADMITTING else "share"
        limits = Limits(user, app=app, agent=Agent(redis, namespace="login", policy="strict", when_hub_is_away=away))
        app.post("/login")(limits.limit(quota)(login))
    else:
        theirs = peer("flask_limiter").Limiter(
            user,
            app=app,
            storage_uri=redis,
            strategy="moving-window",
            in_memory_fallback_enabled=limiter == FALLING_BACK,
        )
        app.post("/login")(theirs.limit(quota)(login))
    return app
