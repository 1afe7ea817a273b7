"""Chooses which of two hubs a node exchanges with: the primary, or the fallback while that fails. Does no I/O."""

# A move to the other hub is costly: for one lease the node asks for no allowances on strict limits, and it refuses more
# requests. So one failed exchange is no reason to move, and one answer is no reason to return. A primary that answers
# now and then would make the fleet move to and fro; so if it fails again within STEADY_SHARE pauses after a return, the
# pause between questions to it doubles. Every node chooses for itself, and pauses have a random part, so that a hub
# that comes back gets its nodes back one after the other.

from __future__ import annotations

from random import Random
from typing import Final

from reconverge.clock import SECOND_NS

FAILURES_MAX: Final = 3
"""After this many failed exchanges in a row a node moves to the fallback."""
PROBE_NS: Final = 5 * SECOND_NS
"""How long a node uses the fallback before it asks whether the primary answers again; also the pause between two such
questions."""
PROBE_MAX_NS: Final = 60 * SECOND_NS
JITTER: Final = 0.25
"""Pauses are lengthened or shortened at random by up to this fraction, so that not all nodes ask or return at the same
moment."""
ANSWERS_MIN: Final = 2
"""After the primary has answered this many questions in a row, a node returns to it."""
STEADY_SHARE: Final = 10
"""If the primary fails within this many pauses after the node's return, the node doubles its pause between
questions."""


class HubChoice:
    """One node's choice between the primary and the fallback for one shard, which is the primary at first."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.primary = True
        """Whether the node exchanges with the primary now; if not, with the fallback."""
        self.moves = 0
        """How often the node has moved from one hub to the other."""
        self._failures = self._answers = 0
        self._pause_ns = PROBE_NS
        self._came_back_ns: int | None = None
        self._probe_at_ns = 0

    def exchanged(self, *, answered: bool, now_ns: int) -> bool:
        """Called after each exchange with the chosen hub; returns True if the node now moves to the fallback."""
        self._failures = 0 if answered else self._failures + 1
        if not self.primary or self._failures < FAILURES_MAX:
            return False
        came_back_ns = self._came_back_ns
        hasty = came_back_ns is not None and now_ns - came_back_ns < STEADY_SHARE * self._pause_ns
        self._pause_ns = min(2 * self._pause_ns, PROBE_MAX_NS) if hasty else PROBE_NS
        self._move(now_ns)
        return True

    def probe_due(self, now_ns: int) -> bool:
        """Returns whether the caller must now ask the primary if it answers again, and then call `probed`."""
        if self.primary or now_ns < self._probe_at_ns:
            return False
        self._plan_probe(now_ns)
        return True

    def probed(self, *, answered: bool, now_ns: int) -> bool:
        """Called after a question to the primary: whether it `answered`. Returns whether the node now returns to it."""
        if self.primary:
            return False
        self._answers = self._answers + 1 if answered else 0
        if self._answers < ANSWERS_MIN:
            return False
        self._came_back_ns = now_ns
        self._move(now_ns)
        return True

    def _move(self, now_ns: int) -> None:
        self.primary = not self.primary
        self.moves += 1
        self._failures = self._answers = 0
        self._plan_probe(now_ns)

    def _plan_probe(self, now_ns: int) -> None:
        self._probe_at_ns = now_ns + int(self._pause_ns * (1 + JITTER * (2 * self._random.random() - 1)))
