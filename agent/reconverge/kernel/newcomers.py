"""Bounds how many new keys a node reports to the hub per second, and divides that number among its limits."""

# Theory of operation.
#
# An attacker that makes up keys makes the hub store them, too: each new key is reported at once, because its node knows
# nothing about it. So a key about which the hub has never answered waits in a queue of its own limit, and every
# exchange takes from these queues no more than a budget allows. Until then the node decides about the key by the
# policy's cold allowance. Keys that the hub knows do not wait here, and get at least half of each batch if they need
# it.
#
# The budget is `per_second` for the whole node. Limits that have keys waiting share it evenly, however many keys each
# of them has, so a flood of one limit's keys delays no other limit's new keys. What a limit may report accumulates for
# up to BURST_NS.

from __future__ import annotations

from typing import Final, Protocol

from reconverge.clock import NEVER_NS, SECOND_NS
from reconverge.kernel.engine import put_forward
from reconverge.kernel.reporting.lanes import Lanes
from reconverge.kernel.shard import ShardState, Tally
from reconverge.kernel.table.table import Table

NEW_KEYS_MAX: Final = 5000
"""The most new keys that a node reports per second, by default. A Redis merges some 40,000 reports per second on one
core, and a node could send some 15,000. With this bound, eight nodes under attack at once leave the Redis time for the
keys that it knows, and a node that is restarted reports 50,000 keys within 10 s."""
BURST_NS: Final = SECOND_NS // 4


class Tables(Protocol):
    """The part of a node that `Newcomers` needs: its tables. `Kernel` implements it."""

    tables: dict[str, Table]


class Newcomers:
    """The new keys of a node that wait for their first report to the hub, and the budget for such reports."""

    def __init__(self, kernel: Tables, per_second: int) -> None:
        self._kernel = kernel
        self.per_second = per_second
        self.start_over()

    def start_over(self) -> None:
        """Forgets which new keys wait, and fills the budgets of all limits."""
        self._credits: dict[str, tuple[int, int]] = {}
        """By the name of a limit: how many new keys it may still report, in billionths of a key, and the moment of that
        count."""
        self._busy: dict[str, int] = {}
        """By the name of a limit: the moment until which that limit counts as one that shares the node's budget."""
        self._left: dict[tuple[str, int], int] = {}
        """By the name of a limit and the index of a shard: how many new keys wait because the budget was used up."""
        self._turn = 0

    def forget(self, limit_name: str) -> None:
        """Removes the budget of a limit that the node has dropped."""
        self._credits.pop(limit_name, None)
        self._busy.pop(limit_name, None)
        for place in [each for each in self._left if each[0] == limit_name]:
            del self._left[place]

    def waiting(self, shard: ShardState) -> int:
        """Returns how many new keys of all limits wait to be reported to `shard`."""
        return sum(len(table.tallies[shard.index].fresh) for table in list(self._kernel.tables.values()))

    def any_wait(self, shard: ShardState) -> bool:
        """Returns whether any new key waits to be reported to `shard`."""
        return any(table.tallies[shard.index].fresh for table in list(self._kernel.tables.values()))

    def hand_over(
        self, shard: ShardState, waiting: Lanes, now_ns: int, cells_max: int, *, unmetered: bool
    ) -> tuple[bool, int]:
        """Moves new keys into `waiting`, from which the next batch to `shard` takes at most `cells_max` cells.

        Returns whether more new keys may be reported at once. Also returns the moment at which the budget allows the
        next new key; NEVER_NS if it is not used up. `unmetered` is for a node that stops: then there is no budget.
        """
        fresh = [
            (table, tally)
            for table in list(self._kernel.tables.values())
            if (tally := table.tallies[shard.index]).fresh
        ]
        if not fresh:
            return False, NEVER_NS
        self._turn += 1
        first = self._turn % len(fresh)
        fresh = fresh[first:] + fresh[:first]
        room = cells_max - min(len(waiting), cells_max // 2)
        most = {table.name: room if unmetered else self._earned(table.name, now_ns) for table, _ in fresh}
        for share in (max(1, room // len(fresh)), room):
            for table, tally in fresh:
                taken = put_forward(tally, shard, waiting, table.lock, min(share, room, most[table.name]))
                room -= taken
                most[table.name] -= taken
                if not unmetered:
                    self._spend(table.name, taken)
        more, again_ns = False, NEVER_NS
        for table, tally in fresh:
            used_up = not unmetered and most[table.name] < 1
            again_ns = min(again_ns, self._close(table, tally, shard, now_ns, used_up=used_up))
            more = more or (not used_up and len(tally.fresh) > 0)
        return more, again_ns

    def queue_again(self, shard: ShardState) -> None:
        """Rebuilds the queues of new keys of a shard, after an exception has interrupted `hand_over`.

        The exception may have come after a key left its queue and before it joined the batch.
        """
        for table in list(self._kernel.tables.values()):
            table.lock.run(_queue_again, table, shard)

    def _close(self, table: Table, tally: Tally, shard: ShardState, now_ns: int, *, used_up: bool) -> int:
        """Stores how many new keys of a limit still wait; returns when the next of them may be reported.

        Returns NEVER_NS if none waits, or if the budget is not used up.
        """
        place = table.name, shard.index
        left = len(tally.fresh) if used_up else 0
        before = self._left.pop(place, 0)
        if not left:
            tally.fresh_from_ns = -NEVER_NS
            return NEVER_NS
        self._left[place] = left
        table.deferred += max(0, left - before)
        self._busy[table.name] = now_ns + SECOND_NS
        tally.fresh_from_ns = now_ns + min(table.interval_ns, BURST_NS)
        return tally.fresh_from_ns

    def _earned(self, name: str, now_ns: int) -> int:
        """Returns how many new keys of the limit `name` the budget allows to report now, and stores that budget."""
        most = self.per_second * BURST_NS
        credit, since_ns = self._credits.get(name, (most, now_ns))
        sharing = sum(until_ns > now_ns for limit, until_ns in self._busy.items() if limit != name) + 1
        credit = min(most, credit + self.per_second * (now_ns - since_ns) // sharing)
        self._credits[name] = credit, now_ns
        return credit // SECOND_NS

    def _spend(self, name: str, keys: int) -> None:
        credit, since_ns = self._credits[name]
        self._credits[name] = credit - keys * SECOND_NS, since_ns


def _queue_again(table: Table, shard: ShardState) -> None:
    queue = table.tallies[shard.index].fresh
    while queue:
        queue.popleft()
    for cell in table.all_cells():
        if cell.fresh and cell.shard is shard:
            queue.append(cell)
