"""Carries out a hub's orders to erase identities (`hub/erasing.py`) in the usage counts of one node.

A node reads the erasure orders before each report, so after an outage it reports nothing of an identity that was erased
during the outage. If a node has reported counts of the identity while the hub was being searched, it retracts these
counts, and only its own.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable

from reconverge.clock import Clock
from reconverge.hub.erasing import OrderLog, erasure_mark
from reconverge.hub.hashing import VARIABLE, KeyHasher
from reconverge.hub.port import Eraser, Hub, UsageEraser
from reconverge.hub.usage import BATCH_ROWS_MAX, Period, UsageKey
from reconverge.usage.reports import UsageReports


class UsageErasing:
    """Applies a hub's erasure orders to this node's usage. Raises InvalidSetting if the key secret is invalid."""

    def __init__(self, hub: Hub | None, clock: Clock, *, namespace: str, key_secret: str | bytes | None) -> None:
        self._hub: object = hub
        self._clock = clock
        self._namespace = namespace
        said, name = (key_secret, "key_secret") if key_secret is not None else (os.environ.get(VARIABLE), VARIABLE)
        self._hasher = None if said is None else KeyHasher(said, namespace=namespace, name=name)
        self.begin()

    def begin(self) -> None:
        """Forgets all orders to erase, and all rows to retract. Called at the start, and in a forked child."""
        self._log = OrderLog(self._clock.monotonic_ns())
        self._retractions: dict[int, list[tuple[Period, UsageKey]]] = {}
        """The rows of usage that this node must retract from the hub, by shard."""
        self._here: deque[Callable[[str], bool]] = deque()
        """Functions that return True for identities to erase on this node without an order of the hub."""

    def also(self, is_named: Callable[[str], bool]) -> None:
        """Erases on this node, before its next report, the identities for which `is_named` returns True.

        Needs no order of the hub. Any thread may call it.
        """
        self._here.append(is_named)

    async def obey(self, ledger: object, reports: UsageReports) -> None:
        """Reads the hub's orders to erase identities, forgets these, and retracts their rows of usage from the hub.

        Raises HubUnavailable; the next call then continues with the rows that are left.
        """
        while self._here:
            self._erase(reports, self._here.popleft())
        if isinstance(self._hub, Eraser):
            marks = await self._log.news(self._hub, self._clock.monotonic_ns())
            if marks:
                self._erase(reports, lambda identity: self._mark(identity) in marks)
        for shard, rows in list(self._retractions.items()):
            while rows and isinstance(ledger, UsageEraser):
                await ledger.retract(reports.account, shard, rows[:BATCH_ROWS_MAX])
                del rows[:BATCH_ROWS_MAX]
            del self._retractions[shard]

    def _erase(self, reports: UsageReports, is_named: Callable[[str], bool]) -> None:
        for shard, rows in reports.erase(is_named).items():
            self._retractions.setdefault(shard, []).extend(rows)

    def _mark(self, identity: str) -> str:
        return erasure_mark(identity if self._hasher is None else self._hasher.hashed(identity), self._namespace)
