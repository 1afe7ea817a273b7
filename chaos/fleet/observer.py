"""Reads a hub's data about our fleet; at a broker, as a member that decides nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from secrets import token_hex
from typing import Final

from chaos.names import CENSUS_NAME, LIMIT_NAME
from reconverge.clock import MICROSECOND_NS, SECOND_NS
from reconverge.hub.registry import HubSettings, open_hub
from reconverge.hub.report import Batch

LEASE_US: Final = 30_000_000


class Observer:
    """A process that reads the hub's data again and again.

    `where` returns the URL before each look, as another server may have taken over by then. `by_members` is whether the
    hub's data are kept by its members, one of which an observer has to be.
    """

    def __init__(
        self, where: Callable[[], str], name: str, *, timeout_s: float, interval_s: float, by_members: bool
    ) -> None:
        self._where = where
        self._url = where()
        self._settings = HubSettings(name, timeout_s)
        self._hub = open_hub(self._url, self._settings)
        self._node = token_hex(8)
        self._sequence = 0
        self._interval_us = round(interval_s * SECOND_NS) // MICROSECOND_NS
        self._by_members = by_members

    async def introduce(self) -> None:
        """Creates the hub's data. Raises HubUnavailable."""
        for shard in range(self._hub.shards):
            await self._say_hello(shard)

    async def step_back(self) -> None:
        """Gives the data up to another member, if members keep them; the next look is then a new member's."""
        if self._by_members:
            await self._hub.close()

    async def look(self) -> tuple[int, int]:
        """Returns the charges to the limit and to the census. Raises HubUnavailable."""
        if self._where() != self._url:
            await self._hub.close()
            self._url = self._where()
            self._hub = open_hub(self._url, self._settings)
        if self._by_members:
            await self._say_hello(0)  # a member that leaves hands the data over to one that was heard lately
        totals = await self._hub.totals()
        charged = [totals[limit].charged if limit in totals else 0 for limit in (LIMIT_NAME, CENSUS_NAME)]
        return charged[0], charged[1]

    async def close(self) -> None:
        """Ends the looks."""
        await self._hub.close()

    @property
    def rejects(self) -> int:
        """Returns the number of messages that this member has rejected."""
        found: Counter[str] | None = getattr(self._hub, "rejects", None)
        return 0 if found is None else found.total()

    async def _say_hello(self, shard: int) -> None:
        self._sequence += 1
        await self._hub.exchange(
            Batch(
                node=self._node,
                account=self._node,
                shard=shard,
                sequence=self._sequence,
                generation="",
                interval_us=self._interval_us,
                lease_us=LEASE_US,
                leaving=not self._by_members,
                limits=(),
                cells=(),
            )
        )
