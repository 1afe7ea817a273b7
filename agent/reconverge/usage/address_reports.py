"""Reports to the hub how many addresses each identity comes from; the hub estimates the number for the whole fleet."""

# Theory of operation.
#
# The estimates of several nodes cannot be added up, because a customer with one address may send requests to all of
# them. But the sketches, arrays of small numbers (registers) from which a node estimates, can be merged, if all nodes
# hash with the same secret (`merge/addresses.py`). So a node first proposes its own secret to the hub, and gets the
# secret of the fleet. If that is another one, the node starts to count addresses anew with it. The addresses that the
# node counted before that, until the first report of its process, are missing from the fleet's numbers.
#
# A node reports only the registers that have risen: most identities have one or two addresses, so most of the time
# there is nothing to report. Registers that could not be reported are part of the next report of the same hour. If the
# hub's answer to a usage report shows that the hub has lost its data, the node reports all registers of the hour again.

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from reconverge.clock import SECOND_NS, Clock
from reconverge.hub.port import AddressLedger, UsageLedger
from reconverge.hub.usage import HOUR, SKETCHES_REPORTED_MAX, AddressReport, Period, shard_of
from reconverge.usage.meter import Meter
from reconverge.usage.periods import period_at

Ask = Callable[[Awaitable[Any]], Awaitable[Any]]
"""A function that awaits a call of the hub within a timeout. It returns the answer, and raises the call's errors."""


class AddressReports:
    """Sends the hub this node's sketches, compact estimators of how many addresses each identity comes from.

    Does nothing if the hub cannot merge address sketches.
    """

    def __init__(self, meter: Meter, ledger: UsageLedger | None, clock: Clock) -> None:
        found: object = ledger
        self._ledger = found if isinstance(found, AddressLedger) else None
        self._shards = 1 if ledger is None else ledger.shards
        self._meter = meter
        self._clock = clock
        self._left_out = 0
        self.start_over()

    def start_over(self) -> None:
        """Forgets what was reported. Called in a forked child, in which the meter counts addresses from zero again."""
        self._hour = self._hour_now()
        self._losses = 0

    @property
    def unwatched(self) -> int:
        """Returns how often an address was not counted for its identity, because this node or the hub had no room."""
        return self._left_out + self._meter.addresses.unwatched

    async def tell(self, ask: Ask, *, losses: int) -> None:
        """Sends the hub the registers (numbers) of this node's address sketches that have risen since the last report.

        `losses` is how often the hub has lost its data so far; if that has grown, all registers are sent again. `ask`
        awaits a call of the hub. If `ask` raises an error, it is raised here, and the next call sends the rest.
        """
        book, ledger = self._meter.addresses, self._ledger
        if losses != self._losses:
            self._losses = losses
            book.raise_all()
        risen = {} if ledger is None else book.take_risen()
        if ledger is None or not risen:
            return
        try:
            secret = await ask(ledger.address_secret(book.secret))
            if secret != book.secret:
                risen.clear()
                book.begin_with(secret)
                return
            for shard in range(self._shards):
                names = [name for name in risen if shard_of(name, self._shards) == shard]
                for start in range(0, len(names), SKETCHES_REPORTED_MAX):
                    part = {name: risen[name] for name in names[start : start + SKETCHES_REPORTED_MAX]}
                    report = AddressReport(self._hour.number, shard, secret, part)
                    self._left_out += await ask(ledger.note_addresses(report))
                    for name in part:
                        del risen[name]
        finally:
            book.give_back(risen)

    def turn_hour(self) -> None:
        """Makes the meter count addresses from zero again if an hour has ended. Called after each report."""
        hour, book = self._hour_now(), self._meter.addresses
        if hour != self._hour:
            self._hour = hour
            self._left_out += book.unwatched
            book.forget()

    def _hour_now(self) -> Period:
        return period_at(HOUR, self._clock.wall_ns() / SECOND_NS)
