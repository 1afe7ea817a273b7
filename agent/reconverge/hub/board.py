"""Snapshots of nodes for a console: while a console is open, each node stores its snapshot at the hub."""

# Theory of operation.
#
# The problem. A console is opened on one worker, or beside all of them, and is to show the whole fleet. Nodes know
# nothing of each other, and what the hub knows of them is allowances and counts, not health or what a node has refused.
#
# Why nodes do not send their state all the time. A fleet would pay for it while no operator looks: a hub of 200 nodes
# would take 200 snapshots a second.
#
# How it works. An open console stores a mark at the hub, which expires unless the console renews it. Each node looks
# for the mark once in a second, by reading one field; while the mark is there, nodes store snapshots:
#
#     console   watch ─────────── watch ─────────── (closed) ··· the mark ends
#     node 1    look  look  snapshot  snapshot  snapshot  snapshot ··· look  look
#     node 2    look  look  snapshot  snapshot  (cut off) ··· its last snapshot ends
#     node 3    look  look  snapshot  LEFT (stopped)
#
# Everything has a bound: the bytes of a snapshot, the number of snapshots, and the time for which the hub keeps them.
# No decision and no grant depends on them. The console trusts a snapshot no more than any text from outside, as each
# client of the hub could have written it.
from __future__ import annotations

import re
from typing import Final

from reconverge.clock import SECOND_NS

LOOK_NS: Final = SECOND_NS
"""How often a node checks whether a console is open, in nanoseconds; while one is, each check also stores a
snapshot."""
IDLE_LOOK_NS: Final = 10 * SECOND_NS
"""How often a node without keys checks whether a console is open, in nanoseconds."""
WATCH_S: Final = 15.0
"""For how many seconds a console counts as open after it has asked for snapshots; a node without keys checks at least
once in that time."""
SNAPSHOT_S: Final = 5.0
"""For how many seconds the hub keeps a snapshot. A node that leaves no new one in that time is cut off, or has
ended."""
LEFT: Final = b""
"""The payload that a node leaves in place of its snapshot when it ends, for WATCH_S: it is not cut off."""
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
        raise ValueError(
            f"the snapshot has {len(payload)} bytes; at most {SNAPSHOT_BYTES_MAX} are allowed; leave some values out"
        )
