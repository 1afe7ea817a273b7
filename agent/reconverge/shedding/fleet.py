"""The fleet layer of a stack: it keeps a part of the fleet's capacity free for critical requests."""

# Theory of operation.
#
# The capacity of the fleet is a limit with one key for all traffic. A class with a reserved part has a share of it (a
# limit with a `parent`, decision record 0030): no other class can use this share, and beyond the share the class may
# use the pool. All other classes have only the pool. So with a fifth reserved, the others together never take more than
# four fifths of the capacity, on however many nodes.
#
# Partitioned. A node that cannot reach its hub goes on within its allowances until their lease is over. After that
# `strict` and `balanced` limits refuse every known key, which is right for a quota and wrong for a whole service: the
# loss of the hub would be an outage of everything behind it. So a node whose agent is partitioned goes on admitting as
# before: in each window, of each class, as many requests as in the fullest of the last `REMEMBERED` windows in which
# the hub answered. The admissions of all nodes in one window fitted the capacity, so their sum stays near the capacity.
# But the capacity is no longer a bound: traffic that moves between nodes can add up to more. A refusal then states that
# the node cannot reach the others.

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from reconverge.agent.agent import Agent
from reconverge.clock import MILLISECOND_NS
from reconverge.errors import InvalidSetting
from reconverge.limit.limit import Limit
from reconverge.runtime.locks import new_lock
from reconverge.runtime.process import register
from reconverge.runtime.threads import Total
from reconverge.shedding.classes import CRITICAL, TrafficClasses
from reconverge.shedding.layers import Arrival, ShedRefusal
from reconverge.shedding.rate import Charge, refusal_of
from reconverge.stats import PARTITIONED

if TYPE_CHECKING:
    from reconverge.decision import Decision

KEY: Final = "fleet"
RESERVED: Final[Mapping[str, float]] = {CRITICAL: 0.2}
"""The default: a fifth of the capacity for critical requests, as Stripe has published."""
REMEMBERED: Final = 10
HEALTH_NS: Final = 100 * MILLISECOND_NS
"""The nanoseconds between two reads of the agent's health."""


class FleetShedder:
    """Refuses requests, with 503, that would take the fleet's capacity from the critical classes.

    Args:
        agent: the agent of the fleet; all nodes have to make this layer, with the same arguments.
        capacity: how many requests the whole fleet serves, as "1000/second" or a `Limit`.
        reserved: by class, the fraction of the capacity that is kept for it; by default a fifth for "critical".
        classes: the classes of traffic; by default the four of `TrafficClasses`.
        name: the name of this layer in decisions, metrics, switches and at the hub.

    Raises:
        InvalidSetting: `agent` is no agent, or a class with a reserved fraction, or all others together, would have
            less than one request.
        InvalidLimit, LimitConflict: as `Agent.limit` does.
    """

    counts_by_key: Final = False

    def __init__(
        self,
        agent: Agent,
        capacity: str | Limit,
        *,
        reserved: Mapping[str, float] = RESERVED,
        classes: TrafficClasses | None = None,
        name: str = "fleet",
    ) -> None:
        if not isinstance(agent, Agent):
            raise InvalidSetting("agent", agent, "is no Agent; pass the one that the application has")
        self.name = name
        self.classes = TrafficClasses() if classes is None else classes
        whole = Limit.parse(capacity) if isinstance(capacity, str) else capacity
        if not isinstance(whole, Limit):
            raise InvalidSetting("capacity", capacity, "must be a limit such as '1000/second'")
        shares = _quotas_of(reserved, self.classes, whole)
        pool = agent.limit(name, whole)
        self._agent = agent
        self.limiters: Final = [
            agent.limit(f"{name}/{each}", replace(whole, quota=shares[each], name=None), parent=pool)
            if each in shares
            else pool
            for each in self.classes.names
        ]
        """The limiter that each class is charged to, in the order of the classes."""
        self.memories: Final = [Remembered(whole.window_ns) for _ in self.classes.names]
        """For each class, in order: the counts of the requests that this node has admitted in recent windows."""
        self._partitioned = False
        self._looked_ns = -HEALTH_NS
        register(self, sigterm=False)

    def enter(self, arrival: Arrival) -> Charge | ShedRefusal | None:
        limiter = self.limiters[arrival.rank]
        decision = limiter.hit(KEY)
        if decision.allowed:
            self.memories[arrival.rank].admitted(arrival.now_ns)
            return Charge(limiter, KEY, decision, shown=False)
        return self.refusal(arrival.rank, arrival.now_ns, decision)

    def refusal(self, rank: int, now_ns: int, decision: Decision) -> ShedRefusal | None:
        """Returns the refusal of a request that the fleet's limit has refused; None if the node admits it anyway.

        A node admits it while cut off from the hub, if it has admitted fewer requests of the class than usual in this
        window.
        """
        if self._is_partitioned(now_ns):
            memory = self.memories[rank]
            if memory.has_room(now_ns):
                return None
            reason = "This node cannot reach the other nodes, and has admitted its usual share."
            return ShedRefusal(self.name, 503, memory.window_s, reason, decision)
        return refusal_of(self.name, 503, self.limiters[rank], KEY, decision)

    def enter_anyway(self, arrival: Arrival) -> Charge | None:  # noqa: ARG002  # nothing was charged
        return None

    def readings(self) -> Mapping[str, float]:
        return {"partitioned": float(self._partitioned)}

    def start_over_after_fork(self) -> None:
        """Forgets the counts of admitted requests: a forked child is a node of its own."""
        for memory in self.memories:
            memory.start_over()

    def stop_for_good(self, timeout_s: float) -> None:
        """Does nothing, because this layer has no thread to stop at the end of the process."""

    def _is_partitioned(self, now_ns: int) -> bool:
        if now_ns - self._looked_ns >= HEALTH_NS:
            self._looked_ns = now_ns
            self._partitioned = self._agent.health().state == PARTITIONED
        return self._partitioned


def _quotas_of(reserved: object, classes: TrafficClasses, whole: Limit) -> dict[str, int]:
    if not isinstance(reserved, Mapping) or not reserved:
        raise InvalidSetting("reserved", reserved, "must map names of classes to fractions, such as {'critical': 0.2}")
    quotas: dict[str, int] = {}
    for name, fraction in reserved.items():
        classes.rank(name)
        if isinstance(fraction, bool) or not isinstance(fraction, int | float) or not 0 < fraction < 1:
            raise InvalidSetting("reserved", fraction, f"must be a fraction between 0 and 1, for class {name!r}")
        quotas[name] = int(whole.quota * fraction)
        if quotas[name] < 1:
            raise InvalidSetting(
                "reserved",
                fraction,
                f"of {whole} is less than one request, for class {name!r}; reserve more, or leave the class out",
            )
    if sum(quotas.values()) >= whole.quota:
        raise InvalidSetting(
            "reserved", dict(reserved), f"leaves less than one request of {whole} for the other classes; reserve less"
        )
    return quotas


class Remembered:
    """Counts the requests of a class that a node admits in each window, to admit as many while its hub is away."""

    def __init__(self, window_ns: int) -> None:
        self.window_s = window_ns / 1e9
        self._window_ns = window_ns
        self._counts: deque[int] = deque(maxlen=REMEMBERED)
        self._lock = new_lock()
        self.start_over()

    def start_over(self) -> None:
        """Forgets all requests that were counted, as in a forked child."""
        self._window = -1
        self._ends_ns = 0
        self._admitted = Total()
        self._alone = 0
        self._counts.clear()

    def admitted(self, now_ns: int) -> None:
        """Counts a request that the limit has admitted."""
        # The lock is taken only once in a window, as each request comes here. A request that another thread counts at
        # that moment counts in one of the two windows.
        if now_ns >= self._ends_ns:
            with self._lock:
                self._move_to(now_ns // self._window_ns)
        self._admitted.add()

    def has_room(self, now_ns: int) -> bool:
        """Returns whether the node may admit one more request in this window without its hub.

        If so, counts the request.
        """
        with self._lock:
            self._move_to(now_ns // self._window_ns)
            if self._alone + self._admitted.value >= max(self._counts, default=0):
                return False
            self._alone += 1
            return True

    def _move_to(self, window: int) -> None:
        if window != self._window:
            count = self._admitted.value
            if count:  # a window without the hub is not remembered
                self._counts.append(count)
            self._admitted = Total()
            self._window = window
            self._ends_ns = (window + 1) * self._window_ns
            self._alone = 0
