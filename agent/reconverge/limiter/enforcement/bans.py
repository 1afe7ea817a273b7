"""Bans: a key that was refused too often is refused by all nodes for a fixed time, even if its limit has room."""

# Theory of operation.
#
# `agent.limit("login", "5/minute", block_after="20/minute", block_for="10 minutes")` makes two more limits, which are
# counted, exchanged, evicted and erased like all others, so that a hub needs no code for bans:
#
#     login/refusals   20 in 60 s     each certain refusal of the key is charged here
#     login/ban        1 in 600 s     charged once, when `login/refusals` has reached its quota; a ban while used up
#
# The windows of both begin with the first charge (`kernel/algorithms/first_hit.py`). The hub makes all nodes agree on
# when a window began, and so on when a ban ends. Requests of a banned key are charged to nothing, so they prolong no
# ban. A ban lasts for a window of refusals at least; so no refusal before it counts towards the next one.
#
# Both limits decide by the merged total (`NAIVE`), and not by allowances: a ban in doubt would be worse than a late
# one, and a node without an allowance would ban each key at once. For the same reason the count that keys beyond
# `max_keys` share leads to no ban, and a refusal counts only if it is certain: the limit itself is used up, and the
# rest is not merely held by other nodes. A refusal in shadow or off has no effect on clients, so it does not count:
# nodes that are on would ban clients that were always served.
#
# An admitted request must not pay for two more limits, nor for reading the clock. The set `free` contains the keys that
# were found not to be banned. It is emptied with the first answer of the hub that comes LOOK_NS later: only an answer
# can report another node's ban. Then the node reads `login/ban` again, and this read also queues the key for a report
# to the hub (decision 8). So another node's ban is noticed after LOOK_NS, an exchange of the node that began it, and
# two of this node. A key for which the hub's answer is old, or has not come yet, stays in `free` until the next answer.
# A ban that begins on this node takes its key out of `free` at once.
#
# Cost. `allow` takes 160 ns in place of 62: a call in Python with one look-up. Reading the clock for each decision
# would add 95. Limits without bans are as fast as before. A key takes two more places of `max_keys`, and a row per
# second of use in exchanges.
#
# What bans cannot do. Nodes that are cut off ban by their own refusals. When hub and node are lost together, the ban is
# lost. On a node with more keys than `max_keys`, a key without a count of its own is not banned. A guard asks a limit
# with bans separately, and its other limits give back their charges if that one refuses. Contracts cannot declare bans:
# keys move between their limits, and a ban would have to move along. Slots and smooth limits cannot ban, as their
# refusals are never certain.
#
# Alternatives. A list of bans at the hub would need code in all hubs and in both kernels. A ban as a debt of the limit
# itself works for buckets alone, and falsifies the numbers of the limit. If bans were checked only after a refusal, a
# client banned by one node would be served by each other node until that one refuses it. If each request prolonged a
# ban, a program that retries would be banned for ever, and a stranger that knows a key could keep it banned.

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from reconverge.clock import NEVER_NS, SECOND_NS, Seconds, in_seconds
from reconverge.errors import InvalidLimit, InvalidSetting
from reconverge.limit.checks import check_name
from reconverge.limit.limit import FIRST_HIT, FIXED_WINDOW, Limit
from reconverge.runtime.threads import Total

if TYPE_CHECKING:
    from reconverge.decision import Decision
    from reconverge.kernel import Table

REFUSALS: Final = "refusals"
BAN: Final = "ban"
LOOK_NS: Final = SECOND_NS
"""A key that was found not to be banned is not looked up again for this many nanoseconds; then it is looked up after
the next answer of the hub."""
FRESH_INTERVALS: Final = 2
"""The age, in sync intervals, from which the hub's last answer is too old to rely on."""
NAME_ROOM: Final = len(f"/{REFUSALS}")
"""The number of characters that `/refusals`, the longer of the two endings, adds to the name of a limit with bans."""
_unheeded: Final[ContextVar[bool]] = ContextVar("reconverge_unheeded", default=False)


class BanTerms(NamedTuple):
    """The two limits that define the bans of a limit.

    The quota and the window of `refusals` are how many refusals, in which time, begin a ban. The window of `ban` is how
    long a ban lasts.
    """

    refusals: Limit
    ban: Limit


def ban_terms(block_after: str | None, block_for: Seconds | str | None) -> BanTerms | None:
    """Makes the terms of a limit's bans from two settings of `Agent.limit`, such as "20/minute" and "10 minutes".

    Returns None if both are None.

    Raises InvalidSetting if only one is given, or if one is invalid.
    """
    if block_after is None and block_for is None:
        return None
    if block_for is None:
        raise InvalidSetting(
            "block_after", block_after, "has no effect without block_for; add block_for='10 minutes', for example"
        )
    if block_after is None:
        raise InvalidSetting(
            "block_for", block_for, "has no effect without block_after; add block_after='20/minute', for example"
        )
    refusals = _refusals(block_after)
    window_s = _seconds(block_for)
    if window_s < refusals.window:
        problem = f"is shorter than the {refusals.window:g} s of block_after; make it at least as long"
        raise InvalidSetting("block_for", block_for, problem)
    try:
        return BanTerms(refusals, Limit(1, window_s, algorithm=FIXED_WINDOW, align=FIRST_HIT))
    except InvalidLimit as error:
        raise InvalidSetting("block_for", block_for, error.problem) from None


@contextmanager
def unheeded() -> Iterator[None]:
    """Makes a context in which refusals do not count towards a ban, because no client sees these refusals."""
    _unheeded.set(True)
    try:
        yield
    finally:
        _unheeded.set(False)  # no token: another context could not reset with it


def names_of(name: str) -> tuple[str, str]:
    """Returns the names of the two limits that count the refusals and the bans of the limit called `name`.

    Raises InvalidLimit if a name is too long.
    """
    return check_name(f"{name}/{REFUSALS}"), check_name(f"{name}/{BAN}")


def _refusals(block_after: object) -> Limit:
    problem = "must be a number of refusals in a time, such as '20/minute'"
    if not isinstance(block_after, str):
        raise InvalidSetting("block_after", block_after, problem)
    try:
        limit = Limit.parse(block_after, algorithm=FIXED_WINDOW)
    except (InvalidLimit, InvalidSetting) as error:
        raise InvalidSetting("block_after", block_after, problem) from error
    plain = Limit(limit.quota, limit.window, algorithm=FIXED_WINDOW)
    if limit != plain or limit.refuses_all:
        raise InvalidSetting("block_after", block_after, f"{problem}, without any other option")
    return replace(plain, align=FIRST_HIT)


def _seconds(block_for: object) -> float:
    """Returns a duration in seconds, from a number, a `timedelta` or "10 minutes". Raises InvalidSetting."""
    problem = "must be a duration, such as '10 minutes', or a number of seconds above zero"
    if isinstance(block_for, str):
        try:
            return Limit.parse(f"1/{block_for.strip()}", algorithm=FIXED_WINDOW).window
        except (InvalidLimit, InvalidSetting) as error:
            raise InvalidSetting("block_for", block_for, problem) from error
    seconds = in_seconds(block_for) if isinstance(block_for, timedelta) else block_for
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        raise InvalidSetting("block_for", block_for, problem)
    return seconds


class Bans:
    """The banned keys of one limit, as far as this node knows.

    The tables of `name/refusals` and `name/ban` hold them. No method waits, and none fails for a valid key.
    """

    def __init__(self, refusals: Table, table: Table) -> None:
        self._refusals = refusals
        self.table = table
        """The table of the limit `name/ban`, which counts bans; its `admitted` is how many bans this node has begun."""
        self.free: set[str] = set()
        """Keys that were found not to be banned. At `max_keys` keys, all are dropped, and each is looked up again when
        used."""
        self._in_doubt: set[str] = set()
        """The keys in `free` for which the hub's last answer is too old to rely on."""
        table.kernel.after_answers.append(self._note_answer)
        self.in_force = True
        """Whether the limit is on. While it is off or in shadow, its refusals have no effect, and do not count towards
        a ban."""
        self.start_over()

    @property
    def tables(self) -> tuple[Table, Table]:
        """Returns the table that counts refusals, and the table that counts bans."""
        return self._refusals, self.table

    def start_over(self) -> None:
        """Forgets all keys. Called in a forked child, as they belong to the parent."""
        self._read_all_anew()
        self._emptied_ns = -NEVER_NS
        self._refused = Total()

    @property
    def terms(self) -> BanTerms:
        """Returns how many refusals begin a ban and how long the ban lasts, as declared."""
        return BanTerms(self._refusals.limit, self.table.limit)

    @property
    def refused(self) -> int:
        """Returns how many requests this node has refused because their key was banned."""
        return self._refused.value

    def is_banned(self, key: str) -> bool:
        """Returns whether a key is banned. A key that was found not to be is looked up again after about a second."""
        if type(key) is str and key in self.free:
            return False
        table = self.table
        key = table.check_key(key)
        usage = table.usage(key)
        if not usage.total:
            if len(self.free) >= table.kernel.keys_max:
                self._read_all_anew()
            self.free.add(key)
            if usage.staleness * SECOND_NS > FRESH_INTERVALS * table.interval_ns:
                self._in_doubt.add(key)
            usage = table.usage(key)  # another thread may have begun a ban meanwhile, or received one
            if usage.total:
                self.free.discard(key)
        # The usage is that of this key only if the key has a count of its own: it may leave at any moment.
        return usage.total > 0 and key in table.cells

    def _note_answer(self, now_ns: int) -> None:
        """Makes keys be looked up again, as an answer of the hub may report a ban: all keys, once in LOOK_NS.

        Between these times, only keys about which the hub's last answer was too old.
        """
        if now_ns - self._emptied_ns >= LOOK_NS:
            self._emptied_ns = now_ns
            self._read_all_anew()
        elif self._in_doubt:
            in_doubt, self._in_doubt = self._in_doubt, set()
            self.free.difference_update(in_doubt)

    def _read_all_anew(self) -> None:
        self.free.clear()
        self._in_doubt.clear()

    def decision(self, key: str, *, counts: bool = True) -> Decision | None:
        """Returns a refusal until the end of the ban if the key is banned; else None.

        With `counts`, adds one to `refused`; a caller that only tests the limit passes False.
        """
        if not self.is_banned(key):
            return None
        decision = self.table.test(key)
        if decision.allowed:  # the ban has ended since
            return None
        if counts and self._heeded:
            self._refused.add()
        return replace(decision, certain=True)

    def note(self, key: str) -> bool:
        """Counts a certain refusal towards a ban. Begins the ban if all nodes together have counted enough refusals.

        Does not count while the limit is off or in shadow, or in an `unheeded` block. Returns whether the key is
        banned.
        """
        if not self._heeded:
            return False
        key, refusals, table = self.table.check_key(key), self._refusals, self.table
        refusals.hit(key)
        if key not in refusals.cells or refusals.usage(key).total < refusals.limit.quota:
            return False
        if not table.usage(key).total and key in table.cells:  # `usage` has made a cell if there was room
            table.hit(key)
        self.free.discard(key)
        return True

    @property
    def _heeded(self) -> bool:
        """Returns whether refusals count now: the limit is on, and the caller is not in an `unheeded` block."""
        return self.in_force and not _unheeded.get()

    def lift(self, key: str) -> None:
        """Ends the ban of `key` and forgets its refusals: here at once, on other nodes when they look up the key."""
        self.table.reset(key)
        self._refusals.reset(key)

    def forget(self, is_named: Callable[[str], bool]) -> None:  # noqa: ARG002  # all keys are read anew
        """Forgets which keys were found not to be banned, as the identity to erase may be among them."""
        self._read_all_anew()
