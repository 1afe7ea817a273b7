"""Computes the windows of a fleet from the windows of its nodes, for limits whose windows begin with the first hit.

A node charges each request to the window that it believes to be open: the hub's window once the hub has answered, and
until then a window that the node has opened. Each window of a node is a part of one window of the fleet.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import NamedTuple


class OpenedWindow(NamedTuple):
    """A window as one node counted it; it began at microsecond `began_us` of the hub's clock."""

    node: int
    began_us: int


def fleet_windows(
    opened: Iterable[OpenedWindow], window_us: int, *, of_hub: Collection[int] | None = None
) -> dict[OpenedWindow, int]:
    """Returns, for each window of a node, the beginning of the fleet's window that it is a part of, in microseconds.

    `of_hub` has the beginnings of the windows in the hub's answers; if it is None, the windows that several nodes had
    are taken for these. A node's own window is a part of the hub's window in which it began. Otherwise it is a part of
    the window that the hub opened during it, unless the node, not knowing of that one, has begun another window in it.
    The hub never knew the remaining windows of nodes; they count together if they begin within one window's length.
    """
    known = sorted(set(opened), key=lambda one: (one.began_us, one.node))
    hubs = sorted(_shared(known) if of_hub is None else of_hub)
    by_node: defaultdict[int, list[int]] = defaultdict(list)
    for one in known:
        by_node[one.node].append(one.began_us)
    found: dict[OpenedWindow, int] = {}
    own_us: int | None = None
    for one in known:
        place = bisect_right(hubs, one.began_us)
        if place > 0 and one.began_us < hubs[place - 1] + window_us:
            found[one] = hubs[place - 1]
        elif place < len(hubs) and _joins(one, hubs[place], by_node[one.node], window_us):
            found[one] = hubs[place]
        else:
            if own_us is None or one.began_us >= own_us + window_us:
                own_us = one.began_us
            found[one] = own_us
    return found


def _joins(one: OpenedWindow, hub_us: int, of_node: Collection[int], window_us: int) -> bool:
    """Whether window `one` of a node became part of the window that the hub opened during it, at `hub_us`."""
    if hub_us >= one.began_us + window_us:
        return False
    return hub_us in of_node or not any(hub_us < other < hub_us + window_us for other in of_node)


def _shared(known: Iterable[OpenedWindow]) -> set[int]:
    nodes: defaultdict[int, set[int]] = defaultdict(set)
    for one in known:
        nodes[one.began_us].add(one.node)
    return {began_us for began_us, which in nodes.items() if len(which) > 1}
