"""Goal: a node stops using its lines before the hub stops holding them for it, whatever it was told meanwhile.

Method: one node and one hub, each with a clock of its own.
"""

from __future__ import annotations

from random import Random

from reconverge.clock import SECOND_NS, ManualClock
from reconverge.hub_clock import DRIFT
from reconverge.kernel import Kernel
from reconverge.limit import Limit
from reconverge.policies import STRICT
from reconverge.report import Status
from reconverge.syncer import Syncer
from reconverge_sync.memory import MemoryHub
from tests.node import START_S


class Pair:
    """A node and its hub, whose clock is as much faster as two clocks may be."""

    def __init__(self) -> None:
        self.clock, self.hubs_clock = ManualClock(START_S), ManualClock(START_S)
        self.hub = MemoryHub(clock=self.hubs_clock)
        self.kernel = Kernel(
            self.clock,
            namespace="test",
            interval_ns=SECOND_NS // 10,
            interval_min_ns=SECOND_NS // 100,
            keys_max=10,
            key_bytes_max=256,
        )
        self.shard = self.kernel.shards[0]
        self.syncer = Syncer(self.kernel, shard=0, random=Random(0), new_name=lambda: "node", now_ns=0)

    def pass_until_ns(self, moment_ns: int) -> None:
        """Let time pass until that moment of the node's clock."""
        passing_ns = moment_ns - self.clock.monotonic_ns()
        self.clock.advance_ns(passing_ns)
        self.hubs_clock.advance_ns(passing_ns + int(passing_ns * DRIFT))

    def exchange(self, declare: Limit | None = None) -> Status:
        """One exchange; `declare` is a limit that is declared while it is under way."""
        sent_ns = self.clock.monotonic_ns()
        batch = self.syncer.take(sent_ns)
        assert batch is not None
        answer = self.hub.merge(batch)
        if declare is not None:
            self.kernel.declare("late", declare, STRICT)
        self.syncer.merged(batch, answer, sent_ns=sent_ns, now_ns=self.clock.monotonic_ns())
        return answer.status


def test_the_slower_clock_does_not_make_the_lease_longer() -> None:
    """At the last moment at which a node may use its lines by its own clock, the hub still holds them by its own."""
    pair = Pair()
    pair.kernel.declare("limit", Limit(100, 60), STRICT)
    pair.exchange()

    pair.pass_until_ns(pair.shard.lease_until_ns - 1)

    assert Status.MERGED is pair.exchange()


def test_a_limit_declared_meanwhile_does_not_make_the_lease_longer() -> None:
    """The lease is the one that the batch asked for, though a longer one has become right before the answer came."""
    pair = Pair()
    pair.kernel.declare("limit", Limit(100, 1), STRICT)
    pair.exchange(declare=Limit(100, 3600))

    pair.pass_until_ns(pair.shard.lease_until_ns - 1)

    assert Status.MERGED is pair.exchange()
