"""One node's state for one shard of the hub: the clock, the lease, charges, and the keys that wait to be reported."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import TypeVar

from reconverge.clock import NEVER_NS
from reconverge.kernel.engine import ShardFields, TallyFields
from reconverge.kernel.reporting.asks import AskState
from reconverge.kernel.reporting.deferred import Later

AnyShard = TypeVar("AnyShard")


class ShardState(ShardFields, AskState):
    """A node's state for one shard of the hub. Moments are monotonic nanoseconds."""

    def __init__(self, index: int, *, alone: bool, offset_ns: int) -> None:
        self.index = index
        self.alone = alone
        """Whether there is no other node: then every allowance is the whole capacity, and nothing is ever reported."""
        self.nodes = 0
        """How many nodes held a lease at this shard at the hub's last answer; 0 before the first one."""
        self.start_over(offset_ns)

    def start_over(self, offset_ns: int) -> None:
        """Forgets all that the hub has answered.

        `offset_ns` is the first estimate of the hub's time minus the monotonic time: this node's own wall time is used.
        """
        self.nodes += self.nodes > 0  # a forked child is one node more than its parent knew
        self.offset_ns = offset_ns
        """The nanoseconds to add to a monotonic time to get the hub's time."""
        self.refreshed_ns = -NEVER_NS
        """When a node without a hub last computed `offset_ns` from its two clocks."""
        self.lag_ns = 0
        """Twice the possible error of `offset_ns`, in nanoseconds."""
        self.late_ns = 0
        """By how many nanoseconds the hub's clock may be behind this estimate. The estimate less this is never earlier
        than the time in the hub's last answer."""
        self.heard_us = 0
        """The latest time of the hub's clock in any answer, also if that clock was set back; 0 before the first one."""
        self.opens_us = 0
        """A sealed share is what this node may use of a key while the hub is silent. It may use it after a whole window
        that began at this moment of the hub's clock or later."""
        self.round_trip_ns = 0
        self.acked_ns = -NEVER_NS
        """When this node sent the last batch that the hub has answered."""
        self.lease_until_ns = NEVER_NS if self.alone else -NEVER_NS
        self.leased_ns = NEVER_NS if self.alone else -NEVER_NS
        """The moment at which all leases of this shard began, less the possible error of a clock."""
        self.lost_ns = -NEVER_NS
        """When the hub last answered that it had lost its data."""
        self.voided: set[str] = set()
        """The names of the limits whose allowances were given up, because their lease has ended since `leased_ns`."""
        self.not_taken = 0
        """How often the hub has refused to store a key because it had no room."""
        self.keeps_until_ns = -NEVER_NS
        """The moment before which no key may be evicted whose use the hub would have to go on counting."""
        self.unconfirmed = 0
        """After the hub has lost its data: the number of keys that this node has not reported to it again yet."""
        self.leaving = 0
        """How many keys that will be evicted wait to send their last report, or for the hub's answer to it; see
        `eviction.py`."""
        self.attended_until_ns = -NEVER_NS
        """The moment until which an exchange loop surely runs; a decision after that must start a loop."""
        self.stay_asleep()
        self.early_ns = NEVER_NS
        """The moment at which the next early exchange is due; NEVER_NS if no key needs one."""
        self.under_way_ns = NEVER_NS
        """When the batch was taken that waits for the hub's answer; NEVER_NS if no batch waits."""
        self.later = Later()
        """The keys that wait until the sync interval of their limit has passed."""
        self.forget_asks()
        self.begin()

    def stay_asleep(self) -> None:
        """Called when the exchange loop will not wake by itself: a decision that needs it must wake or start it."""
        self.looks_ns = NEVER_NS
        """The latest moment at which the loop looks at due work without being woken."""
        self.regular_ns = -NEVER_NS
        """The earliest moment at which a regular exchange may begin."""
        self.begins_ns = -NEVER_NS
        """The earliest moment at which an early exchange may begin."""

    def stay_awake(self) -> None:
        """Called when the exchange loop is awake: it will look for due work again before it sleeps."""
        self.looks_ns = -NEVER_NS

    def sleep_until(self, looks_ns: int, *, regular_ns: int, begins_ns: int) -> None:
        """Called when the exchange loop goes to sleep until `looks_ns`; see `reporting/requests.py`.

        The loop begins no regular exchange before `regular_ns`, and no early exchange before `begins_ns`.
        """
        self.regular_ns = regular_ns
        self.begins_ns = begins_ns
        self.looks_ns = looks_ns  # last: until then every decision that wants an exchange wakes the loop


class Tally(TallyFields):
    """The sums of a limit's charges and refunds at one shard, and the part of each that the hub has confirmed.

    Both sums only rise while the node's account, the name under which it reports them, stays the same.
    """

    __slots__ = ("_confirmed", "_reported")

    def __init__(self) -> None:
        self.begin()
        self.charged = 0
        self.refunded = 0
        self._reported = (0, 0)
        self._confirmed = (0, 0)

    @property
    def changed(self) -> bool:
        """Returns whether the sums differ from those that the hub has confirmed."""
        return (self.charged, self.refunded) != self._confirmed

    @property
    def unconfirmed(self) -> int:
        """Returns the part of `charged` that the hub has not confirmed."""
        return self.charged - self._confirmed[0]

    def report(self) -> tuple[int, int]:
        """Returns the sums of charges and of refunds, which the caller then sends to the hub."""
        self._reported = (self.charged, self.refunded)
        return self._reported

    def confirm(self) -> None:
        """Called when the hub has received the sums that `report` returned last."""
        self._confirmed = self._reported

    def unconfirm(self) -> None:
        """Called when the hub has lost the sums that it had confirmed."""
        self._confirmed = (0, 0)

    def absorb(self, other: Tally) -> None:
        """Moves the sums of `other` into this tally, because both are one limit at the hub; `other` then has zero."""
        self.charged, other.charged = self.charged + other.charged, 0
        self.refunded, other.refunded = self.refunded + other.refunded, 0
        self._reported = self._reported[0] + other._reported[0], self._reported[1] + other._reported[1]
        self._confirmed = self._confirmed[0] + other._confirmed[0], self._confirmed[1] + other._confirmed[1]
        other._reported = other._confirmed = (0, 0)

    def drop_confirmed(self) -> None:
        """Subtracts from each sum the part that the hub has confirmed."""
        self.charged -= self._confirmed[0]
        self.refunded -= self._confirmed[1]
        self._reported = self._confirmed = (0, 0)


def shard_of(shards: Sequence[AnyShard], namespace: str, limit_name: str, key: str) -> AnyShard:
    """Returns the shard that counts `key`, the same on all nodes; clients cannot predict it, as the hash is keyed."""
    if len(shards) == 1:
        return shards[0]
    # Not Python's hash, which differs from process to process: two nodes would keep one key in two shards, and not see
    # each other's counts.
    hashed = blake2b(f"{limit_name}\x00{key}".encode(), digest_size=8, key=namespace.encode()[:64]).digest()
    return shards[int.from_bytes(hashed, "big") % len(shards)]
