"""A stranger that asks a node about distinct keys at a given rate, beside the node's customers.

Some of these keys are newcomers: honest clients that the node has not seen before. A newcomer that is refused asks
again in each of the stranger's turns, of which there are fifty a second. It counts as served if it is admitted in one
of fifty turns. The number of first requests that were admitted is noted, too.

Newcomers ask again all through a turn: a turn is over in a fraction of its time, and the room that becomes free between
two turns would else always go to the keys with which the turn begins.

A newcomer has a count of its own once the hub has answered about it. On a busy machine an exchange may not end in time,
and takes a second with its pause. So turns in which the node's knowledge is old do not count, for a while.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Any, Final

from chaos.fleet.contestant import Contestant

TURN_S: Final = 0.02
"""The seconds between two turns of the stranger, in each of which it brings as many keys as the rate requires."""
NEWCOMERS_APART: Final = 251
"""One key in this many is a newcomer; an odd number, so that each of the limits has newcomers."""
PATIENCE_TURNS: Final = 50
"""The turns after which a newcomer goes away: a second, or longer if the machine holds the process up."""
ALL_TURNS_MAX: Final = 250
"""The turns after which a newcomer goes away even if the node's knowledge was old in some of them."""
OLD_S: Final = 0.3
"""The age, in seconds, from which on a node's knowledge is old: it is older if an exchange has failed."""


class Stranger:
    """Asks one contestant, on a thread of its own."""

    def __init__(self, contestant: Contestant, node: int, limits: int) -> None:
        """`limits` is the number of flooded limits, which the stranger asks in turn."""
        self._contestant = contestant
        self._node = node
        self._limits = limits
        self._keys_per_s = 0
        self._keys = 0
        self._waiting: deque[tuple[int, str, int, int]] = deque()
        """Refused newcomers: the limit, the key, the number of turns that they stay, and the number of all turns."""
        self.newcomers = self.admitted = self.at_once = 0
        self.rss_kb = self._rss_before_kb = 0
        self._thread: threading.Thread | None = None

    def flood(self, keys_per_s: int) -> None:
        """Asks about `keys_per_s` distinct keys per second from now on; with 0, goes away."""
        self._keys_per_s = keys_per_s
        if self._thread is None:
            self._rss_before_kb = resident_kb()
            self._thread = threading.Thread(target=self._ask, name="stranger", daemon=True)
            self._thread.start()
        if not keys_per_s:
            self._thread.join()

    @property
    def facts(self) -> dict[str, Any]:
        """Returns the counts of the stranger's requests; none if it has never come."""
        if self._thread is None:
            return {}
        return {
            "stranger": {
                "keys": self._keys,
                "newcomers": self.newcomers,
                "newcomers_admitted": self.admitted,
                "newcomers_admitted_at_once": self.at_once,
                "grown_kb": self.rss_kb - self._rss_before_kb,
            }
        }

    def _ask(self) -> None:
        due_s = time.monotonic()
        while self._keys_per_s:
            keys, waiting = round(self._keys_per_s * TURN_S), len(self._waiting)
            counts = self._contestant.staleness_s() <= OLD_S
            for number in range(keys):
                self._ask_about_another()
                self._ask_again(waiting * (number + 1) // keys - waiting * number // keys, counts=counts)
            self.rss_kb = max(self.rss_kb, resident_kb())
            due_s = max(due_s + TURN_S, time.monotonic() - TURN_S)
            time.sleep(max(0.0, due_s - time.monotonic()))
        while self._waiting:
            self._ask_again(len(self._waiting), counts=self._contestant.staleness_s() <= OLD_S)
            time.sleep(TURN_S)

    def _ask_about_another(self) -> None:
        key = f"2001:db8:{self._node:x}:{self._keys:x}::/64"
        self._keys += 1
        limit = self._keys % self._limits
        if self._keys % NEWCOMERS_APART:
            self._contestant.knock(limit, key)
            return
        self.newcomers += 1
        if self._contestant.knock(limit, key):
            self.admitted += 1
            self.at_once += 1
        else:
            self._waiting.append((limit, key, PATIENCE_TURNS, ALL_TURNS_MAX))

    def _ask_again(self, newcomers: int, *, counts: bool) -> None:
        """Lets the newcomers ask that have waited longest; the turn `counts` if the node's knowledge is not old."""
        for _ in range(newcomers):
            limit, key, turns, of_all = self._waiting.popleft()
            if self._contestant.knock(limit, key):
                self.admitted += 1
            elif turns > 1 and of_all > 1:
                self._waiting.append((limit, key, turns - counts, of_all - 1))


def resident_kb() -> int:
    """Returns the memory of this process in KiB."""
    with open("/proc/self/status") as status:  # noqa: PTH123  # called many times a second
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
