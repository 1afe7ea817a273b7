"""Rules for the headroom of a node, the part of its allowance that it holds unused.

A node holds a margin over its need; where a window is longer than the lease, it holds its need, or a small part of the
unused capacity if that is more. An allowance is what a node may use by itself; the allowances of all nodes sum to the
capacity at most.
"""

# Theory of operation.
#
# The problem. A node that is killed cannot report its use since its last report, and one that is only cut off may
# use all of its allowance until its lease is over. The hub cannot tell them apart, so it has to count the whole
# allowance as used, for as long as use counts. If the window is over before the lease is, that takes nothing away: the
# allowance would not have come back sooner. In a window of an hour it does. A lone node used to hold half of what was
# free, so a process that crashed six times left nothing of 1000 an hour, with 107 used.
#
# Why the hub does not count less. A node that was only cut off may have used its allowance, and then others would use
# it a second time: the bound would break in every partition.
#
# So the allowance itself is small. If a window outlasts a lease, a node's headroom is what it expects to use until it
# can be answered again, or HEADROOM_FRACTION of what is left if that is more. As it is a part of what is *left*, a
# crash loop takes less each time, and never all of it. The same holds for the allowance with which the next window
# starts, and the overdraft is small, too. What a node needs beyond that it asks for, ahead of time if need be. The
# price is paid in a partition: a node that is cut off has this little headroom, and no more.
#
# Both fractions are constants and not settings: the hub of a fleet has to know them. The hub grants no more, a node
# keeps no more, so that allowances become small again after a burst; `grant` and `_lower_allowances` have their twins
# in Lua and C. Policies without a bound have nothing to count, and keep large allowances. The bound does not depend on
# the fractions, so nodes and hubs with and without them work together. `docs/decisions/` has the figures, in decision
# 5.

from __future__ import annotations

from math import floor
from typing import Final

NEED_MARGIN: Final = 1.5
"""A node, or the bridge of a region, asks for this multiple of the use that it expects until the next exchange."""
SLACK_KEPT: Final = 0.5
"""The fraction of the capacity beyond the needs of all nodes that the hub grants in advance, to each node in proportion
to its need."""
SLACK_FADING: Final = 0.6
"""The value of SLACK_KEPT for buckets and sliding windows. It is larger, as unused capacity of a bucket drains nothing,
and as no end of a window frees all capacity at once."""
SLACK_FADING_ASKED: Final = 0.9
"""The value of SLACK_FADING if requests ask the hub when in doubt: they get from the hub what their node lacks."""
SLACK_ASKED: Final = 0.0
"""The value of SLACK_KEPT for fixed windows if requests ask the hub when in doubt. It is 0, because capacity that a
node holds unused at the end of a window is lost."""
PLENTY: Final = 0.5
"""If this fraction of the capacity is left beyond the needs of all nodes, nodes whose requests ask the hub hold as much
as others. Otherwise they would hold too little to leave charges unreported; see `kernel/reporting/silence.py`."""
SILENCE_MAX_S: Final = 10
"""The longest time, in seconds, for which a node may report nothing about a key that is charged."""
UNRECALLED_SILENCE_S: Final = 2
"""The value of SILENCE_MAX_S with a hub that does not recall keys; see `Answer.recalls`."""
WINDOW_SHARE: Final = 16
"""A node reports nothing about a charged key for at most the window divided by this."""
REQUESTS_MIN: Final = 8
"""A node leaves no charges to a key unreported if the capacity is fewer requests than this for each node that needs the
key."""
INTERVALS_MIN: Final = 2
"""If charges may go unreported for less than this many sync intervals, they are all reported."""
HEADROOM_FRACTION: Final = 0.04
"""The fraction of the unused capacity that a node may hold even if it expects to use less."""
SEALED_AFTER_S: Final = 15
"""A node may open its sealed shares, once a window has passed that began at least this many seconds after the hub's
last answer."""
SEALED_INTERVALS: Final = 6
"""A node is given sealed shares only if that is at least this many of its sync intervals: a node that is only between
two exchanges opens none."""
SEALED_WINDOW_MAX_S: Final = 300
"""Only shares of windows of at most this many seconds are sealed: leases end before a share of a longer one opens."""
OVERDRAFT_FRACTION: Final = 0.01
"""The largest overdraft of a node, as a fraction of the capacity. The overdraft and the headroom are a twentieth
together."""


def longest_silence(window: int, interval: int, at_most: int) -> int:
    """Returns how long nodes may leave charges to a key unreported, at most; 0 if they must report each charge.

    `window` is the limit's, `interval` the sync interval. All times, also the returned one, have the same unit. See
    `kernel/reporting/silence.py`.
    """
    silence = min(window // WINDOW_SHARE, at_most)
    return silence if silence >= INTERVALS_MIN * interval else 0


def sealed_after_us() -> int:
    """Returns how long after an answer a node opens no sealed share, in microseconds: at least one.

    A window that begins with the answer is not one that begins after it.
    """
    return max(1, SEALED_AFTER_S * 1_000_000)


def is_plenty(left: float, needs: float, capacity: float) -> bool:
    """Returns whether so much is left beyond all needs that nodes may hold some of it though requests ask."""
    return left - needs >= PLENTY * capacity


def slack_kept(*, fixed: bool, dated: bool, asks: bool) -> float:
    """Returns which fraction of the capacity that no node needs the nodes hold in addition to their needs.

    That depends on the limit: `fixed` means fixed windows, `dated` that charges expire by their dates, and `asks` that
    requests ask the hub when in doubt, and that it does not have plenty (`is_plenty`).
    """
    if fixed:
        return SLACK_ASKED if asks else SLACK_KEPT
    if dated:
        return SLACK_KEPT
    return SLACK_FADING_ASKED if asks else SLACK_FADING


def headroom_max(need: float, left: float, unit: float = 1.0) -> float:
    """Returns the most that a node may hold unused when all nodes have `left` of the capacity unused.

    The result is at least the node's `need`, and at least `unit`, the amount for which one request counts.
    """
    return max(need, unit, HEADROOM_FRACTION * left)


def overdraft_max(capacity: int, unit: int = 1) -> int:
    """Returns the largest overdraft of a node on a limit of that capacity; at least `unit`, the amount of a request."""
    return max(unit, floor(OVERDRAFT_FRACTION * capacity))
