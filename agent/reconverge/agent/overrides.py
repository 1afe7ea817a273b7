"""Has the limits of one agent, and its pace, follow the settings that are published for the fleet."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import replace

from reconverge.errors import InvalidSetting
from reconverge.limiter.limiter import Limiter
from reconverge.remote_settings.poller import OrdersStats
from reconverge.remote_settings.signed import LimitOrder, Orders

PACE = "sync_interval"
NOTHING = LimitOrder()


class Obedience:
    """What is in force on one agent, and what of it cannot be obeyed there.

    `take_pace` is called with the name of a limit, or None for the agent's pace, and with the published interval, or
    None for what the node itself says; it raises InvalidSetting.
    """

    def __init__(self, take_pace: Callable[[str | None, float | None], None]) -> None:
        self._take_pace = take_pace
        self._orders: Orders | None = None
        self._capped: set[str] = set()
        self._unfit: dict[str, str] = {}
        self.start_over()

    def start_over(self) -> None:
        """After a fork, another thread of the parent's may have held the lock."""
        self.lock = threading.RLock()
        """Held while limits are declared or changed."""

    def obey(self, orders: Orders | None, limiters: Iterable[Limiter]) -> None:
        """Go by these from now on; by the agent's own settings if there are none. Raises nothing."""
        with self.lock:
            self._orders = orders
            self._capped, self._unfit = set(), {}
            try:
                self._take_pace(None, None if orders is None else orders.sync_interval)
            except InvalidSetting as error:
                self._unfit[PACE] = str(error)
            for limiter in limiters:
                self.teach(limiter)

    def teach(self, limiter: Limiter) -> None:
        """Have a limiter go by what is in force."""
        orders = self._orders
        order = NOTHING if orders is None else orders.limits.get(limiter.name, NOTHING)
        capped, problem = limiter.take_order(order, None if orders is None else orders.switch)
        problems = [problem] if problem else []
        try:
            self._take_pace(limiter.name, order.sync_interval)
        except InvalidSetting as error:
            problems.append(str(error))
        if capped:
            self._capped.add(limiter.name)
        if problems:
            self._unfit[limiter.name] = "; ".join(problems)

    def told(self, stats: OrdersStats) -> OrdersStats:
        """The same, with what only this object knows."""
        return replace(stats, capped=tuple(sorted(self._capped)), unfit=dict(self._unfit))
