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
        """There is no other node: every allowance is the whole capacity, and nothing is ever reported."""
        self.start_over(offset_ns)

    def start_over(self, offset_ns: int) -> None:
        """Forgets all knowledge of the hub; its clock is taken to be the wall clock."""
        self.offset_ns = offset_ns
        """The difference from the monotonic clock to the hub's."""
        self.refreshed_ns = -NEVER_NS
        """When that was last compared, on a node that has no hub to ask."""
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
        """From when on the leases run, which are of various lengths; earlier than that by what a clock may err."""
        self.lost_ns = -NEVER_NS
        """When it was last heard that the hub had lost its data."""
        self.voided: set[str] = set()
        """Limits whose allowances have been given up because their lease was over, since the leases began to run."""
        self.not_taken = 0
        """How often the hub had no room for a key."""
        self.keeps_until_ns = -NEVER_NS
        """Until when the hub is not asked to take over the use of keys that leave."""
        self.unconfirmed = 0
        """Cells that have yet to be reported to a hub that has lost its data."""
        self.leaving = 0
        """Keys whose last report is due or under way; see `eviction.py`."""
        self.attended_until_ns = -NEVER_NS
        """Until when a runner has promised to look at due work; a decision after that has to start one."""
        self.stay_asleep()
        self.early_ns = NEVER_NS
        """When to exchange ahead of time, because a cell needs it."""
        self.under_way_ns = NEVER_NS
        """When the batch was taken that waits for its answer; never, if none does."""
        self.later = Later()
        """The cells that wait until their limit is due."""
        self.forget_asks()
        self.begin()

    def stay_asleep(self) -> None:
        """Notes that the exchange loop will not wake by itself: a decision that needs it must wake or start it."""
        self.looks_ns = NEVER_NS
        """When the loop looks at due work at the latest, without being woken."""
        self.regular_ns = -NEVER_NS
        """No regular exchange begins before that."""
        self.begins_ns = -NEVER_NS
        """No exchange ahead of time begins before that."""

    def stay_awake(self) -> None:
        """Notes that the exchange loop is at work, and checks for due work again before it sleeps."""
        self.looks_ns = -NEVER_NS

    def sleep_until(self, looks_ns: int, *, regular_ns: int, begins_ns: int) -> None:
        """Notes that the exchange loop sleeps until `looks_ns` unless it is woken; see `reporting/requests.py`.

        It begins no regular exchange before `regular_ns`, and none ahead of time before `begins_ns`.
        """
        self.regular_ns = regular_ns
        self.begins_ns = begins_ns
        self.looks_ns = looks_ns  # last: until then each wish wakes it


class Tally(TallyFields):
    """A limit's charges and refunds at one shard since the account began, with what the hub has confirmed of them.

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
        """Subtracts what the hub has confirmed, so that only the rest is kept."""
        self.charged -= self._confirmed[0]
        self.refunded -= self._confirmed[1]
        self._reported = self._confirmed = (0, 0)


def shard_of(shards: Sequence[ShardState], namespace: str, limit_name: str, key: str) -> ShardState:
    """Returns the shard that keeps a key, by a keyed hash: the same on all nodes, and unpredictable for clients."""
    if len(shards) == 1:
        return shards[0]
    # Not Python's hash, which differs from process to process: nodes that disagree would keep one key in two shards and
    # not see each other's counts.
    hashed = blake2b(f"{limit_name}\x00{key}".encode(), digest_size=8, key=namespace.encode()[:64]).digest()
    return shards[int.from_bytes(hashed, "big") % len(shards)]
