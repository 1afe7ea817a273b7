"""The application of a gevent worker: Flask, our extension with a roomy limit, and a view that asks a contestant.

The view also works for a moment in a slot of a limit on what is in progress, if it gets one.

Imported by the worker, after gevent has patched the standard library. Nothing is decided before the first burst comes,
so that the first decisions, which have the exchanges begin, are made by many greenlets at once.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections.abc import Callable, Iterable
from itertools import count
from random import Random
from typing import Any

import flask

from chaos.fleet.contestant import Ours
from chaos.fleet.node import Node
from chaos.fleet.plan import Plan, Request
from chaos.fleet.slots import SHORT_S, SlotTaker, work_in_slot
from chaos.fleet.workers.gevent_worker import ALIVE, PLAN
from chaos.fleet.workers.prefork import PR_SET_PDEATHSIG
from chaos.fleet.workers.prefork import application as alive
from reconverge.integrations.flask import Limits

ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
_flask = flask.Flask("chaos")
_node = Node(Plan.of_line(os.environ[PLAN]))
(_contestant,) = _node.contestants
if isinstance(_contestant, Ours):
    Limits(app=_flask, agent=_contestant.agent, default_limits=["1000000/minute"])
_numbers = count()
_random = Random(f"slots {_node.plan.seed}")
_looking = threading.Thread(target=_node.wait_for_the_end, name="looks", daemon=True)


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Returns the application for gunicorn; its readiness can be tested without a decision."""
    return (alive if environ["PATH_INFO"] == ALIVE else _flask.wsgi_app)(environ, start_response)


@_flask.get("/")
def decide() -> flask.Response:
    """Decides a request, and records the decision."""
    request = Request(0, flask.request.args["key"], int(flask.request.args["cost"]))
    allowed = _node.ask_one(_contestant, request)
    if next(_numbers) == 0:
        _looking.start()
    if _node.plan.slots and isinstance(_contestant, SlotTaker):
        work_in_slot(_node, _contestant, _random, longest_s=SHORT_S[1])
    return flask.Response(status=200 if allowed else 429)
