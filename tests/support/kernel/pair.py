"""A vocabulary for tests of names and leases: a node with an allowance of which it has used a part, and its hub."""

from __future__ import annotations

from reconverge.clock import MILLISECOND_NS
from reconverge.hub.report import Answer, Batch, Status
from reconverge.limit import Limit
from reconverge.policies import STRICT
from tests.support.kernel.talker import Talkers

HOUR_S = 3600
WINDOWS = [Limit(500, HOUR_S, algorithm="fixed-window"), Limit(500, HOUR_S, algorithm="sliding-window")]


class Pair(Talkers):
    """A node that holds an allowance of which it has used a part, and its hub."""

    def __init__(self, limit: Limit = WINDOWS[0]) -> None:
        super().__init__(limit, STRICT)
        (self.node,) = self.nodes
        self.node.exchanges_with(self.hub)
        self.node.admitted_of(10)
        self.all_speak(3)
        assert 10 == self.node.admitted_of(10)
        self.all_speak(3)

    def lease_ends(self) -> None:
        """Nothing is said until a millisecond after the lease, when the hub has given up on the node as well."""
        shard = self.node.kernel.shards[0]
        self.clock.advance_ns(shard.lease_until_ns + MILLISECOND_NS - self.clock.monotonic_ns())

    def hears(self, status: Status) -> None:
        """The batch under way gets an answer of that status, with nothing in it."""
        flight, self.node.flight = self.node.flight, None
        assert flight is not None
        answer = Answer(self.clock.wall_ns() // 1000, flight.batch.generation, status, ())
        self.node.syncer.merged(flight.batch, answer, sent_ns=flight.sent_ns, now_ns=self.clock.monotonic_ns())


def name_number(batch: Batch) -> tuple[str, int]:
    """Whose name it is, and which of that account's names."""
    account, _, number = batch.node.rpartition(".")
    return account, int(number)
