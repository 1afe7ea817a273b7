"""Rules for the headroom of a node, the part of its allowance that it holds unused.

An allowance is what a node may use by itself; the allowances of all nodes sum to the capacity at most. As headroom a
node holds its need and a margin. If a window is longer than the lease, it holds only its need, or a small part of the
unused capacity if that is more.
"""

# Theory of operation.
#
# The problem. A node that is killed cannot report its use since its last report, and one that is only cut off may
# use all of its allowance until its lease is over. The hub cannot tell them apart, so it has to count the whole
# allowance as used, for as long as use counts. In a window that is over before the lease, this costs nothing: the
# allowance would not have come back sooner. In a window of an hour it is costly: if a lone node held half of the free
# capacity, a process that crashed six times would leave nothing of 1000 an hour, with 107 used.
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
# Both fractions are constants and not settings, as the hub of a fleet has to know them: the hub grants no more, and a
# node keeps no more, so that allowances become small again after a burst. `grant` and `_lower_allowances` have their
# twins in Lua and C. Policies without a bound on over-admission keep large allowances. The bound does not depend on
# the fractions, so nodes and hubs with and without them work together. Decision 5 in `docs/decisions/` has the figures.

from __future__ import annotations

from math import floor
from typing import Final

NEED_MARGIN: Final = 1.5
"""A node, or the bridge of a region, asks for this multiple of the use that it expects until the next exchange."""
SLACK_KEPT: Final = 0.5
"""The fraction of the capacity left beyond the needs of all nodes that the hub grants in advance, to each node in
proportion to its need."""
SLACK_FADING: Final = 0.6
"""Replaces SLACK_KEPT for buckets and sliding windows. It is larger: a bucket drains only by granted capacity, and at
the end of a window not all capacity becomes free at once."""
SLACK_FADING_ASKED: Final = 0.9
"""Replaces SLACK_FADING if requests ask the hub when their node is in doubt: the hub then grants what the node
lacks."""
SLACK_ASKED: Final = 0.0
"""Replaces SLACK_KEPT for fixed windows if requests ask the hub when their node is in doubt. It is 0, because capacity
that a node holds unused at the end of a window is lost."""
PLENTY: Final = 0.5
"""If this fraction of the capacity is left beyond the needs of all nodes, nodes whose requests ask the hub may hold as
much unused as others. With less they could leave no charges unreported; see `kernel/reporting/silence.py`."""
SILENCE_MAX_S: Final = 10
"""The longest time, in seconds, for which a node may leave charges to a key unreported."""
UNRECALLED_SILENCE_S: Final = 2
"""Replaces SILENCE_MAX_S with a hub that does not recall keys; see `Answer.recalls`."""
WINDOW_SHARE: Final = 16
"""A node leaves charges to a key unreported for at most the window divided by this."""
REQUESTS_MIN: Final = 8
"""A node reports all charges to a key if the capacity is less than this many requests for each node that needs the
key."""
INTERVALS_MIN: Final = 2
"""A node reports all charges if it could leave them unreported only for less than this many sync intervals."""
HEADROOM_FRACTION: Final = 0.04
"""The fraction of the unused capacity that a node may hold even if it expects to use less."""
SEALED_AFTER_S: Final = 15
"""A sealed share is what a node may use of a key while the hub is silent. The node may use it after a whole window that
began at least this many seconds after the hub's last answer."""
SEALED_INTERVALS: Final = 6
"""A node gets sealed shares only if SEALED_AFTER_S is at least this many of its sync intervals, so that it never uses
them just because it is between two exchanges."""
SEALED_WINDOW_MAX_S: Final = 300
"""Only keys with windows of at most this many seconds have sealed shares: with longer windows, leases would end before
a node could use them."""
OVERDRAFT_FRACTION: Final = 0.01
"""The largest overdraft of a node, as a fraction of the capacity. Overdraft and headroom together are a twentieth."""


def longest_silence(window: int, interval: int, at_most: int) -> int:
    """Returns the longest time for which nodes may leave charges to a key unreported; 0 if they must report all.

    `window` is the limit's window, `interval` the sync interval, `at_most` a bound for the result. All four times have
    the same unit. See `kernel/reporting/silence.py`.
    """
    silence = min(window // WINDOW_SHARE, at_most)
    return silence if silence >= INTERVALS_MIN * interval else 0


def sealed_after_us() -> int:
    """Returns how long after the hub's answer a window must begin to count for sealed shares; see SEALED_AFTER_S.

    The result is in microseconds, and at least 1: a window that begins together with the answer does not count.
    """
    return max(1, SEALED_AFTER_S * 1_000_000)


def is_plenty(left: float, needs: float, capacity: float) -> bool:
    """Returns whether the capacity left beyond all nodes' needs is at least the fraction PLENTY of the capacity.

    Then nodes may hold a part of it unused, even if their requests ask the hub when the node is in doubt. `left` is the
    capacity that no node has used.
    """
    return left - needs >= PLENTY * capacity


def slack_kept(*, fixed: bool, dated: bool, asks: bool) -> float:
    """Returns the fraction of the unneeded capacity that nodes hold beyond their needs.

    It depends on the limit: `fixed` means fixed windows, `dated` a sliding log or slices, whose charges expire one by
    one. `asks` means that requests ask the hub when their node is in doubt, and that `is_plenty` is False.
    """
    if fixed:
        return SLACK_ASKED if asks else SLACK_KEPT
    if dated:
        return SLACK_KEPT
    return SLACK_FADING_ASKED if asks else SLACK_FADING


def headroom_max(need: float, left: float, unit: float = 1.0) -> float:
    """Returns the largest headroom of a node if `left` of the capacity is unused by all nodes.

    The result is at least the node's `need`, and at least `unit`, the amount that stands for one request.
    """
    return max(need, unit, HEADROOM_FRACTION * left)


def overdraft_max(capacity: int, unit: int = 1) -> int:
    """Returns the largest overdraft of a node on a limit of that capacity; at least `unit`, which is one request."""
    return max(unit, floor(OVERDRAFT_FRACTION * capacity))
