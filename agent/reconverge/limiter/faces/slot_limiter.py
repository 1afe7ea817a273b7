"""The limiter for limits on work in progress, such as `20 in flight`, which grants slots."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from reconverge.limit.quotas import slots_of
from reconverge.limiter.asking import WITHIN_S
from reconverge.limiter.faces.limiter import Limiter
from reconverge.limiter.faces.rate_limiter import ELSEWHERE, RateLimiter
from reconverge.limiter.slots import FIFO, OnLeaseEnd, Order, Slot, SlotDoor, SlotTerms

if TYPE_CHECKING:
    from reconverge.clock import Seconds
    from reconverge.limit.limit import Limit
    from reconverge.limiter.control import LimitControl

PLAIN: Final = (1, None, None, None, FIFO, WITHIN_S, None)
"""The default values of all arguments of `slot` except the key, in their order."""


class SlotLimiter(Limiter):
    """A limit on work in progress, such as `20 in flight`. A block of code holds a slot for as long as it runs.

    render = agent.concurrency("render", 20)
    with render.slot("ada") as slot:
        if slot: ...
    """

    _elsewhere = dict.fromkeys(
        (*vars(RateLimiter), *ELSEWHERE),
        "limits work in progress, and only grants slots; write: with limiter.slot(key)",
    )

    _declared_by = "agent.concurrency('render', 20)"

    def __init__(self, control: LimitControl) -> None:
        super().__init__(control)
        self._door = SlotDoor(control.enforcement)

    def slot(
        self,
        key: str,
        cost: int = 1,
        *,
        kind: str | None = None,
        timeout: Seconds | None = None,
        max_queue: int | None = None,
        order: Order = FIFO,
        within: Seconds = WITHIN_S,
        on_lease_end: OnLeaseEnd = None,
    ) -> Slot:
        """Returns a slot for a `with` or `async with` block.

        The slot is requested when the block begins, and given back when it ends, also by an error. Within the block,
        `bool(slot)` is whether it was granted. Without a `timeout` the request does not wait for other work to end, but
        in doubt it asks the hub, for `within` seconds at most (0: not at all). With a `timeout`, it waits for that many
        seconds in the queue of the key, unless `max_queue` requests wait already; "fifo" serves first the request that
        came first, "lifo" the one that came last. `cost` is the number of slots to take at once; with a `kind`, it is a
        number of requests of that kind. `on_lease_end` acts when the node has had no answer of the hub for so long that
        other nodes may use its slots: "cancel" cancels the task, and the block raises LeaseEnded; a function is called
        with the slot, in the event loop.

        Raises:
            InvalidKey, InvalidCost, CostExceedsQuota, UnknownKind: as `RateLimiter.hit` does.
            InvalidSetting: a setting is wrong or has no effect.
        """
        if (cost, kind, timeout, max_queue, order, within, on_lease_end) == PLAIN:
            return Slot(self._door, key, self._door.plain)
        terms = SlotTerms(
            cost=cost,
            kind=kind,
            timeout=timeout,
            max_queue=max_queue,
            order=order,
            within=within,
            on_lease_end=on_lease_end,
        )
        return Slot(self._door, key, terms)

    def change(self, limit: int | str | Limit, *, costs: Mapping[str, int] | None = None) -> None:
        """Changes the number of slots. Slots in use are kept; if `limit` is a plain number, all else stays as it is.

        The lease cannot change. A larger number is in force when the last node has changed; a smaller one is in force
        on each node as soon as that node has changed. A number that is published for the fleet has precedence, as long
        as it is in force.

        Raises:
            InvalidLimit: `limit` does not limit work in progress, or has another lease; nothing has changed then.
            InvalidSetting: a setting contradicts `limit`.
        """
        lease = self.limit.lease if isinstance(limit, int) else None
        self.control.plan_change(slots_of(limit, lease), costs=costs)()
