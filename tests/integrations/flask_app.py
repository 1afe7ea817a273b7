"""An application of Flask's behind limits, to be loaded before its server forks."""

from __future__ import annotations

import os

import flask

from reconverge import Agent
from reconverge.integrations import by_header
from reconverge.integrations.flask import Limits

agent = Agent(namespace="web", policy=os.environ["POLICY"])
app = flask.Flask(__name__)
limits = Limits(by_header("x-key"), app=app, agent=agent)


@app.get("/")
@limits.limit(os.environ["LIMIT"], name="items")
def items() -> str:
    """What is limited."""
    return str(os.getpid())


@app.get("/stats")
def stats() -> dict[str, object]:
    """How the exchanges of this worker go."""
    agent.start()
    (exchanges,) = agent.stats().exchanges
    return {"process": os.getpid(), "ready": agent.ready, "failures": exchanges.failures}
