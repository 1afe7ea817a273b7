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
        """Lets time pass without exchanges until the lease is over by a millisecond, also at the hub."""
        shard = self.node.kernel.shards[0]
        self.clock.advance_ns(shard.lease_until_ns + MILLISECOND_NS - self.clock.monotonic_ns())

    def hears(self, status: Status) -> None:
        """Delivers an empty answer with that status to the batch under way."""
        flight, self.node.flight = self.node.flight, None
        assert flight is not None
        answer = Answer(self.clock.wall_ns() // 1000, flight.batch.generation, status, ())
        self.node.syncer.merged(flight.batch, answer, sent_ns=flight.sent_ns, now_ns=self.clock.monotonic_ns())


def name_number(batch: Batch) -> tuple[str, int]:
    """Returns the account of a name, and the number of the name in that account."""
    account, _, number = batch.node.rpartition(".")
    return account, int(number)
