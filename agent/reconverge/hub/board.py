"""Snapshots of nodes for a console: an open console asks for them at the hub, and each node leaves its own there."""

# Theory of operation.
#
# The problem. A console is opened on one worker, or beside all of them, and is to show the whole fleet. Nodes know
# nothing of each other, and what the hub knows of them is allowances and counts, not health or what a node has refused.
#
# Why nodes do not send their state all the time. A fleet without a console would pay for a page that no operator reads:
# of 200 nodes the hub would take 200 snapshots a second.
#
# How it works. An open console leaves a mark with an end at the hub, and renews it. Each node looks for the mark once
# in a second, which is one field of the hub; while it is there, and not a second longer, nodes leave snapshots:
#
#     console   watch ─────────── watch ─────────── (closed) ··· the mark ends
#     node 1    look  look  snapshot  snapshot  snapshot  snapshot ··· look  look
#     node 2    look  look  snapshot  snapshot  (cut off) ··· its last snapshot ends
#
# Everything is bounded: a snapshot in bytes, snapshots in number, and both in time. Nothing that decides or grants
# depends on any of it, and what is read there is believed no more than any text from outside: each client of the hub
# could have written it.
from __future__ import annotations

import re
from typing import Final

from reconverge.clock import SECOND_NS

LOOK_NS: Final = SECOND_NS
"""The nanoseconds between two checks of a node whether a console is open; while one is, the node then also leaves a
snapshot."""
IDLE_LOOK_NS: Final = 10 * SECOND_NS
"""The nanoseconds between two checks of a node that has no keys, whether a console is open."""
WATCH_S: Final = 15.0
"""For how many seconds a console counts as open after it has asked for snapshots; a node without keys checks at least
once in that time."""
SNAPSHOT_S: Final = 5.0
"""For how many seconds the hub keeps a snapshot. A node that leaves no new one in that time is cut off, or has
ended."""
SNAPSHOT_BYTES_MAX: Final = 16_384
"""The largest size of one snapshot, in bytes."""
SNAPSHOTS_MAX: Final = 2000
"""The most snapshots that a hub keeps: two of each of 1000 nodes, with 32 MB in all. It refuses further ones."""
_NAME: Final = re.compile(r"[0-9a-f]{1,32}")


def check_snapshot(name: str, payload: bytes) -> None:
    """Raises ValueError if this name or payload of a snapshot is not allowed; only a bug of this package causes it."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"the name of a snapshot must be 1 to 32 hexadecimal digits, not {name!r}")
    if len(payload) > SNAPSHOT_BYTES_MAX:
        raise ValueError(f"the snapshot has {len(payload)} bytes; at most {SNAPSHOT_BYTES_MAX} are allowed")
