"""A minimal WSGI application behind a limiter, to be loaded before its server forks."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable

from reconverge import Agent
from tests.support.agents import HOUR_S, node_of

agent = Agent(sync_interval=HOUR_S, min_sync_interval=0.0, exchange_timeout=5.0)
login = agent.limit("login", os.environ["LIMIT"])
in_the_master = login.allow("master")
"""A decision before the fork: so the master exchanges, too, while it forks."""


def app(request: dict[str, object], start_response: Callable[[str, list[tuple[str, str]]], object]) -> Iterable[bytes]:
    """Answers whether the request was admitted, and with the process's number."""
    allowed = login.allow("ada")
    answer = {"allowed": allowed, "process": os.getpid(), "node": node_of(agent), "master": in_the_master}
    start_response("200 OK" if allowed else "429 Too Many Requests", [("Content-Type", "application/json")])
    return [json.dumps(answer).encode()]
