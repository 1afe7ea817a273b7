"""The settings of a gunicorn whose workers write their metrics to files."""

from __future__ import annotations

from typing import Any

from prometheus_client.multiprocess import mark_process_dead


def child_exit(_server: object, worker: Any) -> None:
    """Forgets the gauges of a worker that is gone; its counters stay."""
    forget: Any = mark_process_dead  # which has no annotations
    forget(worker.pid)
