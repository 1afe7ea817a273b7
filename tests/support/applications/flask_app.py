"""A Flask application behind limits, to be loaded before its server forks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

import flask

from reconverge import Agent
from reconverge.integrations import SPENT, by_header
from reconverge.integrations.flask import Limits

ESTIMATE: Final = 50_000
agent = Agent(namespace="web", policy=os.environ["POLICY"])
app = flask.Flask(__name__)
limits = Limits(by_header("x-key"), app=app, agent=agent)


@app.get("/")
@limits.limit(os.environ["LIMIT"], name="items")
def items() -> flask.Response:
    seen = flask.request.headers.get("x-key", "").encode().hex()
    return flask.Response(str(os.getpid()), headers={"x-seen": seen})


@app.get("/items/<number>")
@limits.limit("1000000/day", name="each", per_method=True)
def item(number: str) -> str:
    return str(len(number))


@app.get("/stream")
@limits.limit("100000/day", name="tokens", cost=ESTIMATE, settle=SPENT)
def stream() -> flask.Response:
    """Streams until the client leaves, at a cost of one for each part."""
    outcome = limits.current_outcome
    assert outcome is not None

    def parts() -> Iterator[str]:
        while True:
            outcome.spend(1)
            yield "part\n" * 1000

    return flask.Response(parts())


@app.get("/stats")
def stats() -> dict[str, object]:
    """Returns the statistics of this worker's exchanges."""
    agent.start()
    (exchanges,) = agent.stats().exchanges
    known = {name: each.keys for name, each in agent.stats().limits.items() if each.keys}
    return {
        "process": os.getpid(),
        "ready": agent.ready,
        "failures": exchanges.failures,
        "limits": known,
        "broken": limits.guard.stats().failures,
    }
