"""A minimal ASGI application behind a limiter, made by its server; its agent may exchange on a thread or as a task."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any

from reconverge import Agent
from tests.support.agents import HOUR_S

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Application = Callable[[dict[str, Any], Receive, Send], Awaitable[None]]


def create() -> Application:
    """Makes an agent and an application that asks it; the application does not announce its own end."""
    agent = Agent(sync_interval=HOUR_S, min_sync_interval=0.0, exchange_timeout=5.0)
    login = agent.limit("login", "1000000/day")
    if os.environ.get("STARTS"):
        agent.start()

    async def lifespan(receive: Receive, send: Send) -> None:
        await receive()
        async with agent:
            await send({"type": "lifespan.startup.complete"})
            await receive()
        await send({"type": "lifespan.shutdown.complete"})

    async def app(scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            if os.environ.get("AS_TASK"):
                await lifespan(receive, send)
            return
        allowed = login.allow("ada")
        await asyncio.to_thread(int)  # the loop has an executor to shut down by then
        await send({"type": "http.response.start", "status": 200 if allowed else 429, "headers": []})
        await send({"type": "http.response.body", "body": b"task" if os.environ.get("AS_TASK") else b"thread"})

    return app


def __getattr__(name: str) -> Application:
    """Returns the application, for a server that is given its name; there is one, even after several imports."""
    if name == "app":
        return globals().setdefault("app", create())  # type: ignore[no-any-return]
    raise AttributeError(name)
