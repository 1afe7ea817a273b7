"""The state that all limits of one node share: the clock, sizes, shards, and work that waits until no lock is held.

`Kernel` adds the exchanges with the hub. Limits use only this part of a node: they read it, and change its counters.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from reconverge.clock import SECOND_NS, Clock
from reconverge.hub.headroom import SILENCE_MAX_S
from reconverge.kernel.algorithms.edges import solo_offset_ns
from reconverge.kernel.cell import Cell
from reconverge.kernel.engine import KernelFields, Reports
from reconverge.kernel.reporting.asks import ASKS_MAX, AskBudget
from reconverge.kernel.shard import ShardState, shard_of
from reconverge.settings import MILLION


class Node(KernelFields):
    """The state of one node that its limits share: shards, budgets, counters and pending work."""

    def __init__(
        self,
        clock: Clock,
        *,
        namespace: str,
        keys_max: int,
        key_bytes_max: int,
        shards: int,
        alone: bool,
        hash_key: bytes,
        asks_max: int = ASKS_MAX,
    ) -> None:
        self.clock = clock
        self.namespace = namespace
        self.keys = 0
        self.keys_max = keys_max
        self.turn = 0
        self.key_bytes_max = key_bytes_max
        self.hash_key = hash_key  # a secret of the process, so that strangers cannot find keys with the same hashes
        self.alone = alone
        """Whether there is no hub, and so no other node."""
        self.region_ppm = MILLION
        """The part of every limit that belongs to this node's region, in millionths."""
        self.interval_ns = self.interval_min_ns = self.lease_ns = 0
        """The sync interval, the shortest time between two exchanges, and the lease of the name, in nanoseconds."""
        self.hub_recalls = True
        """Whether the hub recalls keys: asks nodes to report a key of which another node lacks capacity."""
        self.silence_max_ns = SILENCE_MAX_S * SECOND_NS
        """The longest time for which charges to a key go unreported, see `reporting/silence.py`; 0 if none may."""
        self.wake: Callable[[], None] = _no_loop
        """Called, with no lock held, when a request needs an exchange sooner than the exchange loop would begin one. It
        must not wait."""
        self.on_reentry: Callable[[str], None] = _ignore_reentry
        """Called once, with the name of a limit, after a decision was asked for in the middle of another one."""
        self.on_object: Callable[[str, str], None] = _ignore_object
        """Called, with the name of a limit and a key, after a request with a key that is the text of an object."""
        self.take_in_again: Callable[[Any], None] = _know_all
        """Called, with its lock held, when a request uses a table that was dropped; see `table/dropping.py`."""
        self.after_answers: list[Callable[[int], None]] = []
        """Functions that are called after each answer of a hub, with the monotonic time in nanoseconds; they neither
        fail nor wait."""
        self.after_unlock = self.wake_wanted = False
        self._put_off: deque[Callable[[], None]] = deque()
        self._of_objects: set[str] = set()
        self._reentry_noted = False
        offset_ns = clock.wall_ns() - clock.monotonic_ns()
        self.shards = [ShardState(index, alone=alone, offset_ns=offset_ns) for index in range(shards)]
        self.asks = AskBudget(asks_max)
        self.flights: dict[int, Reports] = {}
        """By the index of a shard: the reports of the batch that the hub has not answered yet."""

    def shard_of(self, limit_name: str, key: str) -> ShardState:
        """Returns the shard of the hub that counts `key` of this limit."""
        return shard_of(self.shards, self.namespace, limit_name, key)

    def refresh_offset_ns(self, now_ns: int) -> int:
        """Returns the nanoseconds to add to monotonic time to get wall time, for a node without a hub.

        Measures them again if the last measurement is older than SOLO_REFRESH_NS.
        """
        return solo_offset_ns(self.shards[0], self.clock, now_ns)

    def do_after_unlock(self) -> None:
        """Does the work that was put off by `put_off`, and wakes the exchange loop if `wake_wanted`."""
        self.after_unlock = False
        if self.wake_wanted:
            self.wake_wanted = False
            self.wake()
        for _ in range(len(self._put_off)):
            try:
                work = self._put_off.popleft()
            except IndexError:  # another thread has taken the last piece of work
                return
            work()

    def put_off(self, work: Callable[[], None]) -> None:
        """Queues `work`, which is called when no lock of a limit is held any more."""
        self._put_off.append(work)
        self.after_unlock = True

    def note_reentry(self, name: str) -> None:
        """Called when a thread asks for a decision about `name` in the middle of another one; logs the first such."""
        if not self._reentry_noted:
            self._reentry_noted = True
            self.put_off(partial(self.on_reentry, name))

    def note_of_object(self, name: str, key: str) -> None:
        """Called with a new key that is the text of an object; has the first such of each limit logged."""
        if name not in self._of_objects:
            self._of_objects.add(name)
            self.put_off(partial(self.on_object, name, key))

    def is_under_way(self, cell: Cell) -> bool:
        """Returns whether a report of `cell` waits for the hub's answer."""
        return cell.reported_ns >= cell.shard.under_way_ns

    def start_over(self) -> None:
        """Forgets the hub and all reports that are due. Called in a forked child, as the parent process goes on."""
        offset_ns = self.clock.wall_ns() - self.clock.monotonic_ns()
        self.keys = self.turn = 0
        self.after_unlock = self.wake_wanted = False
        self._put_off.clear()
        self._reentry_noted = False
        self.asks.start_over()
        for shard in self.shards:
            shard.start_over(offset_ns)
        self.flights.clear()


def _no_loop() -> None:
    """Does nothing; it is the value of `wake` while there is no exchange loop."""


def _know_all(table: object) -> None:
    """Does nothing; it is the value of `take_in_again` as long as no table was dropped."""


def _ignore_object(_name: str, _key: str) -> None:
    """Does nothing; it is the value of `on_object` until an agent sets one that logs."""


def _ignore_reentry(name: str) -> None:
    """Does nothing; it is the value of `on_reentry` until an agent sets one that logs."""
