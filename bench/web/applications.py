"""The applications that `bench.web.served` drives: each does nothing, without a limiter or behind one.

`BENCH_LIMITER` names the limiter; `BENCH_REDIS` is the port of the Redis. Every request has a key among a thousand, or
among `BENCH_KEYS`. `BENCH_INTERVAL` is the sync interval in seconds, and `BENCH_QUOTA` the limit of each key.
"""

from __future__ import annotations

import logging
import os
from importlib import import_module
from itertools import cycle
from typing import Any, Final

from bench.decisions.peers import peer
from reconverge import Agent

QUOTA: Final = os.environ.get("BENCH_QUOTA", "1000000000/hour")
KEYS: Final = int(os.environ.get("BENCH_KEYS", "1000"))
INTERVAL_S: Final = float(os.environ.get("BENCH_INTERVAL", "0.1"))
LIMITER: Final = os.environ.get("BENCH_LIMITER", "")
BY_HAND: Final = "reconverge, `allow` by hand"
GUARDED: Final = "reconverge, rules and response fields"
ALONE: Final = "reconverge, rules and response fields, without a hub"
DROP_IN: Final = LIMITER.endswith(" on reconverge")
REDIS: Final = f"redis://127.0.0.1:{os.environ.get('BENCH_REDIS', '6379')}/0"

STORAGE: Final = f"reconverge+{REDIS}" if DROP_IN else REDIS

if LIMITER:
    logging.getLogger("reconverge").setLevel(logging.ERROR)  # the measured outages are on purpose

_keys = cycle([f"customer-{number:04}" for number in range(KEYS)])


def next_key(_request: object = None) -> str:
    """Returns the key of a request; it is drawn here, because the load generator sends only one kind of request."""
    return next(_keys)


def _storage() -> str:
    """Returns the URL of the storage in which slowapi and Flask-Limiter count."""
    if DROP_IN:
        import_module("reconverge.integrations.limits_storage")
    return STORAGE


def fastapi() -> Any:
    """Returns the application for uvicorn: `--factory bench.web.applications:fastapi`."""
    app = peer("fastapi").FastAPI()
    request_type = peer("starlette.requests").Request
    refusal = peer("fastapi").HTTPException
    if LIMITER.startswith("slowapi"):
        limiter = peer("slowapi").Limiter(key_func=next_key, storage_uri=_storage())
        app.state.limiter = limiter

        async def limited(request: Any) -> str:  # noqa: ARG001  # slowapi requires this argument
            return "ok"

        limited.__annotations__["request"] = request_type
        app.get("/")(limiter.limit(QUOTA)(limited))
        return app
    allow = Agent(REDIS, namespace="bench").limit("bench", QUOTA).allow if LIMITER == BY_HAND else None
    rules: list[Any] = []
    if LIMITER in (GUARDED, ALONE):
        agent = Agent("memory://" if LIMITER == ALONE else REDIS, namespace="bench", sync_interval=INTERVAL_S)
        limits = import_module("reconverge.integrations.fastapi").Limits(agent, key_func=next_key)
        limits.install(app)
        app.get("/exchanges")(lambda: [(each.exchanges, each.cells) for each in agent.stats().exchanges])
        rules = [peer("fastapi").Depends(limits(QUOTA))]

    async def route() -> str:
        if allow is not None and not allow(next_key()):
            raise refusal(429)
        return "ok"

    app.get("/", dependencies=rules)(route)
    app.get("/process")(os.getpid)
    return app


def flask() -> Any:
    """Returns the application for gunicorn: `bench.web.applications:flask()`."""
    module = peer("flask")
    app = module.Flask("bench")
    allow = Agent(REDIS, namespace="bench").limit("bench", QUOTA).allow if LIMITER == BY_HAND else None

    def route() -> str:
        if allow is not None and not allow(next_key()):
            module.abort(429)
        return "ok"

    if LIMITER.startswith("flask-limiter"):
        limiter = peer("flask_limiter").Limiter(next_key, app=app, storage_uri=_storage())
        app.get("/")(limiter.limit(QUOTA)(route))
    elif LIMITER == GUARDED:
        limits = import_module("reconverge.integrations.flask").Limits(next_key, app=app, agent=REDIS)
        app.get("/")(limits.limit(QUOTA)(route))
    else:
        app.get("/")(route)
    app.get("/process")(lambda: str(os.getpid()))
    return app
