"""One node's state of one shard of the hub: clock, lease, charges, and the cells that wait to be reported."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from reconverge.clock import NEVER_NS
from reconverge.kernel.engine import ShardFields, TallyFields
from reconverge.kernel.reporting.asks import AskState
from reconverge.kernel.reporting.deferred import Later


class ShardState(ShardFields, AskState):
    """The knowledge of a node about one shard of the hub. Moments are monotonic nanoseconds."""

    def __init__(self, index: int, *, alone: bool, offset_ns: int) -> None:
        self.index = index
        self.alone = alone
        """Whether there is no other node: then every allowance is the whole capacity, and nothing is ever reported."""
        self.start_over(offset_ns)

    def start_over(self, offset_ns: int) -> None:
        """Forgets all knowledge of the hub; its clock is taken to be the wall clock."""
        self.offset_ns = offset_ns
        """The number that turns a monotonic time into the hub's time when it is added."""
        self.refreshed_ns = -NEVER_NS
        """When a node without a hub last computed `offset_ns` from its two clocks."""
        self.lag_ns = 0
        """Twice the possible error of `offset_ns`."""
        self.late_ns = 0
        """By how much the hub's clock may be behind this node's estimate; never so much that it would be behind the
        time in the hub's last answer."""
        self.round_trip_ns = 0
        self.acked_ns = -NEVER_NS
        """When the last batch that was answered had been sent."""
        self.lease_until_ns = NEVER_NS if self.alone else -NEVER_NS
        self.leased_ns = NEVER_NS if self.alone else -NEVER_NS
        """The moment at which all leases began, long and short; set earlier by the possible error of a clock."""
        self.lost_ns = -NEVER_NS
        """When an answer last reported that the hub had lost its data."""
        self.voided: set[str] = set()
        """The limits whose allowances were given up at the end of their lease, since `leased_ns` was last set."""
        self.not_taken = 0
        """How often the hub had no room for a key."""
        self.keeps_until_ns = -NEVER_NS
        """Until when no key may leave on condition that the hub goes on counting its use."""
        self.unconfirmed = 0
        """The number of cells that have yet to be reported to a hub that has lost its data."""
        self.leaving = 0
        """The number of keys whose last report is due or under way; see `eviction.py`."""
        self.attended_until_ns = -NEVER_NS
        """Until when an exchange loop will look at due work; a decision after that has to start a loop."""
        self.stay_asleep()
        self.early_ns = NEVER_NS
        """The moment of the next exchange ahead of time; NEVER_NS if no cell needs one."""
        self.under_way_ns = NEVER_NS
        """When the batch was taken that waits for its answer; NEVER_NS if no batch waits."""
        self.later = Later()
        """The cells that wait until their limit is due."""
        self.forget_asks()
        self.begin()

    def stay_asleep(self) -> None:
        """Notes that the exchange loop will not wake by itself: a decision that needs it must wake or start it."""
        self.looks_ns = NEVER_NS
        """The latest moment at which the loop looks at due work without being woken."""
        self.regular_ns = -NEVER_NS
        """The earliest moment at which a regular exchange may begin."""
        self.begins_ns = -NEVER_NS
        """The earliest moment at which an exchange ahead of time may begin."""

    def stay_awake(self) -> None:
        """Notes that the exchange loop is at work, and checks for due work again before it sleeps."""
        self.looks_ns = -NEVER_NS

    def sleep_until(self, looks_ns: int, *, regular_ns: int, begins_ns: int) -> None:
        """Notes that the exchange loop sleeps until `looks_ns` unless it is woken; see `reporting/requests.py`.

        It begins no regular exchange before `regular_ns`, and none ahead of time before `begins_ns`.
        """
        self.regular_ns = regular_ns
        self.begins_ns = begins_ns
        self.looks_ns = looks_ns  # last: until then every decision that wants an exchange wakes the loop


class Tally(TallyFields):
    """A limit's charges and refunds at one shard since the account began, and the part that the hub has confirmed.

    Both numbers only rise.
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
        """Returns whether the hub has not confirmed the latest numbers yet."""
        return (self.charged, self.refunded) != self._confirmed

    @property
    def unconfirmed(self) -> int:
        """Returns the amount charged that the hub has not confirmed."""
        return self.charged - self._confirmed[0]

    def report(self) -> tuple[int, int]:
        """Returns the numbers of charges and refunds, and notes that they are being sent."""
        self._reported = (self.charged, self.refunded)
        return self._reported

    def confirm(self) -> None:
        """Notes that the hub has received the numbers that were sent last."""
        self._confirmed = self._reported

    def unconfirm(self) -> None:
        """Notes that the hub has lost the numbers."""
        self._confirmed = (0, 0)

    def absorb(self, other: Tally) -> None:
        """Adds the counts of another tally and sets those to zero: the hub keeps one account for both."""
        self.charged, other.charged = self.charged + other.charged, 0
        self.refunded, other.refunded = self.refunded + other.refunded, 0
        self._reported = self._reported[0] + other._reported[0], self._reported[1] + other._reported[1]
        self._confirmed = self._confirmed[0] + other._confirmed[0], self._confirmed[1] + other._confirmed[1]
        other._reported = other._confirmed = (0, 0)

    def drop_confirmed(self) -> None:
        """Subtracts the numbers that the hub has confirmed."""
        self.charged -= self._confirmed[0]
        self.refunded -= self._confirmed[1]
        self._reported = self._confirmed = (0, 0)


def shard_of(shards: Sequence[ShardState], namespace: str, limit_name: str, key: str) -> ShardState:
    """Returns the shard that keeps a key, by a keyed hash: the same on all nodes, and unpredictable for clients."""
    if len(shards) == 1:
        return shards[0]
    # Not Python's hash, which differs from process to process: two nodes would keep one key in two shards, and not see
    # each other's counts.
    hashed = blake2b(f"{limit_name}\x00{key}".encode(), digest_size=8, key=namespace.encode()[:64]).digest()
    return shards[int.from_bytes(hashed, "big") % len(shards)]
