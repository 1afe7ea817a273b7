"""An application whose workers write metrics to files, so that each can show all; loaded before a fork."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from reconverge import Agent
from reconverge.integrations.prometheus import WorkerMetrics

agent = Agent("memory://")
login = agent.limit("login", "1000000000/hour")
agent.add_hooks(WorkerMetrics())
login.allow("before the fork")
agent.look()


def app(request: dict[str, object], start_response: Callable[[str, list[tuple[str, str]]], object]) -> Iterable[bytes]:
    """Decides, and answers with the process's number; under /metrics answers with the metrics of all processes."""
    start_response("200 OK", [("Content-Type", "text/plain")])
    if request["PATH_INFO"] != "/metrics":
        login.allow("ada")
        return [str(os.getpid()).encode()]
    registry = CollectorRegistry()
    read: Any = MultiProcessCollector  # which has no annotations
    read(registry)
    return [generate_latest(registry)]
