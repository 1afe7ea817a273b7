"""Pauses: if a server refuses calls with a key until some moment, no node makes calls with that key before then."""

# Theory of operation.
#
# A server that refuses a call names a time. The node that gets this answer must stop, and so must all others: the
# server refuses their calls meanwhile, and some servers punish them. A pause must not be charged to the quota: if the
# rest of the quota were charged, a second's pause of a daily quota would last for a day.
#
# So nodes share one moment for each key, the latest that any node was given. A hub stores such a number already: the
# date of a key's last reset, which it sends to every node that asks about the key. So there is a limit `name/pause`, to
# which nothing is charged, and whose keys are reset only for pauses:
#
#     a pause of `key` until U    =    the last reset of `key` in `name/pause` is dated U - WINDOW
#
# The date is in the past when it is reported, because no pause is longer than the window; the hub ignores dates far
# ahead. The hub keeps a date for two windows, which is longer than any pause. The order of messages does not matter:
# none shortens a pause, and two pauses are never added up.
#
# A node asks the hub about a key when it makes a call with that key, so it knows of another node's pause after an
# exchange of that node and one of its own. Each node also remembers the pauses that servers have given to itself. It
# needs this memory while it does not know the hub's clock, has no room for the key, or is in the middle of a decision,
# and shares such a pause after the hub's next answer.

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Final

from reconverge.clock import SECOND_NS
from reconverge.limit.checks import check_name
from reconverge.limit.limit import FIXED_WINDOW, Limit
from reconverge.policies import STRICT
from reconverge.runtime.threads import Section

if TYPE_CHECKING:
    from reconverge.kernel import Kernel

PAUSE: Final = "/pause"
"""The ending of the name of the table that contains a limit's pauses."""
LONGEST_S: Final = 86_400
"""The longest pause, in seconds."""
WINDOW_NS: Final = LONGEST_S * SECOND_NS
LIMIT: Final = Limit(1, float(LONGEST_S), algorithm=FIXED_WINDOW)
HEARD_MAX: Final = 1000
"""The largest number of paused keys that a node remembers by itself, without the hub; then it forgets the oldest."""


class Pauses:
    """The paused keys of one limit, with which no node makes calls until the pause ends.

    Raises LimitConflict if another limit is called `name/pause`.
    """

    def __init__(self, name: str, kernel: Kernel) -> None:
        self.table = kernel.declare(check_name(f"{name}{PAUSE}"), LIMIT, STRICT)
        self._now_ns = kernel.clock.monotonic_ns
        self._section = Section()
        """The section that guards changes of the remembered pauses. Reading needs none, so that a signal handler may
        read."""
        self._new: deque[tuple[str, int]] = deque()
        """Pauses that the node has yet to remember: each key, and the time until which it is paused."""
        self._heard: OrderedDict[str, int] = OrderedDict()
        self._unshared: dict[str, int] = {}
        """For each key, the time until which it is paused, for pauses of which other nodes have yet to learn."""
        kernel.after_answers.append(self._note_answer)

    def begin(self, key: str, until_ns: int) -> None:
        """Pauses `key` on all nodes until `until_ns`, by this node's clock. A known pause that ends later stays."""
        until_ns = min(until_ns, self._now_ns() + WINDOW_NS)
        self._new.append((key, until_ns))
        # If this thread is inside the loop already, that loop takes the new entry, too.
        while self._new and not self._section.entered():
            self._section.run(self._take_in)
        self._share(key, until_ns)

    def left_ns(self, key: str) -> int:
        """Returns the nanoseconds for which `key` is still paused; 0 if it is not paused."""
        until_ns = max(self._heard.get(key, 0), *(until for each, until in self._new.copy() if each == key), 0)
        return max(0, until_ns - self._now_ns(), self.table.last_reset_ns(key) + WINDOW_NS - self._now_ns())

    def _note_answer(self, now_ns: int) -> None:  # noqa: ARG002  # it is enough that the hub has answered
        for key, until_ns in list(self._unshared.items()):
            self._share(key, until_ns)

    def _share(self, key: str, until_ns: int) -> None:
        """Makes the next exchange send a pause to the other nodes; if that is impossible now, stores it for later."""
        if self.table.date_reset(key, until_ns - WINDOW_NS):
            self._unshared.pop(key, None)
        elif len(self._unshared) < HEARD_MAX:
            self._unshared[key] = until_ns

    def _take_in(self) -> None:
        heard = self._heard
        while self._new:
            key, until_ns = self._new[0]
            # The pause is stored before the queue's entry goes, so that readers always see one of the two.
            heard[key] = max(until_ns, heard.get(key, 0))
            heard.move_to_end(key)
            self._new.popleft()
        if len(heard) > HEARD_MAX:
            now_ns = self._now_ns()
            for each in [each for each, until_ns in heard.items() if until_ns <= now_ns]:
                del heard[each]
        while len(heard) > HEARD_MAX:
            heard.popitem(last=False)
