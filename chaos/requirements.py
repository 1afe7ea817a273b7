"""Checks that the machine has all that a scenario needs."""

from __future__ import annotations

import shutil
from functools import cache
from importlib.util import find_spec

from chaos.deployments.deployment import BROKER
from chaos.faults.namespace import Namespace
from chaos.faults.proxy import Toxiproxy
from chaos.fleet.plan import GEVENT
from chaos.names import NETWORK, WIRES
from chaos.scenarios.scenario import Scenario
from tests.support.brokers import mosquitto_binary


def missing(scenario: Scenario) -> str:
    """Returns a sentence on what this machine lacks for a scenario; empty if nothing."""
    if shutil.which("setpriv") is None:
        return "there is no setpriv here, which comes with util-linux"
    if scenario.guarded and shutil.which("openssl") is None:
        return "there is no openssl here, to make certificates"
    if scenario.deployment == BROKER and (lacking := _no_mosquitto()):
        return lacking
    if scenario.ground == WIRES and (lacking := Toxiproxy.missing()):
        return lacking
    if scenario.ground == NETWORK and (lacking := _no_namespace()):
        return lacking
    if scenario.shifted and shutil.which("gcc") is None:
        return "there is no gcc here, to build what shifts a server's clock"
    if scenario.program == "prefork" and find_spec("gunicorn") is None:
        return "there is no gunicorn here"
    if scenario.program == GEVENT and (lacking := _no_gevent_worker()):
        return lacking
    return ""


def _no_gevent_worker() -> str:
    missing_ones = [name for name in ("gunicorn", "gevent", "flask") if find_spec(name) is None]
    return f"there is no {missing_ones[0]} here" if missing_ones else ""


def _no_mosquitto() -> str:
    try:
        mosquitto_binary()
    except FileNotFoundError as error:
        return str(error)
    return ""


@cache
def _no_namespace() -> str:
    return Namespace.missing()
