"""Snapshots of nodes that are made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from reconverge.agent.snapshots.snapshot import LimitSnapshot, NodeSnapshot

START_S: Final = 1_750_000_000.0


def some_snapshot(**changes: Any) -> NodeSnapshot:
    """Returns a snapshot of a node that is well."""
    made = NodeSnapshot(
        host="web-1",
        pid=7,
        at=START_S,
        hub="redis://localhost",
        kernel="c",
        state="ready",
        grounds=(),
        keys=3,
        staleness=0.1,
        lease=30.0,
        round_trip=0.001,
        exchanges=10,
        failures=0,
        settings_version=0,
        switch="on",
    )
    return replace(made, **changes)


LIMIT: Final = LimitSnapshot(
    name="login",
    said="3/minute",
    declared={"quota": 3, "window": 60.0},
    policy="balanced",
    overshoot=0.1,
    capacity=3,
    cost_max=1,
    dares=True,
    switch="on",
    admitted=1,
    refused=2,
    would_refuse=0,
    overadmitted=0,
    keys=1,
)
