"""A Flask application behind several kinds of limits, for a server with green threads."""

from __future__ import annotations

import os

import flask

from reconverge import Agent
from reconverge.integrations.flask import Limits

agent = Agent(os.environ["RECONVERGE_HUB"], namespace="green", exchange_timeout=5.0, stop_timeout=10.0)
app = flask.Flask(__name__)
limits = Limits(app=app, agent=agent, default_limits=["1000000/minute"])
several = agent.limit("several", "1000000/second; 2000000/hour")
paced = agent.limit("paced", "500/second", algorithm="leaky-bucket")


@app.get("/")
def index() -> str:
    """Answers a burst: it is limited, charges several quotas, and waits for its turn."""
    allowed = several.allow(flask.request.args["key"])
    return f"{allowed} {paced.wait_blocking('all', timeout=30.0).allowed}"
