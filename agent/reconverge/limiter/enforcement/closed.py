"""Answers for a limit with a quota of 0, which refuses all; and the base class of modes in which no request waits."""

# A quota of 0 refuses everything, and cannot be counted by: rates and shares are divided by the quota, here, in the
# compiled kernel and at the hub. So `Closed` answers for such a limit in the place of `On`, and no request reaches the
# limit's table of counts. In shadow and off the limit is like any other. The table stays, with the smallest numbers
# that it can count by. So the quota can rise and fall again, and the keys keep what they have used.

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from reconverge.errors import InvalidSetting
from reconverge.kernel import Decision

if TYPE_CHECKING:
    from reconverge.kernel import Charged, Costs, Decider, Many, Table

Marked: TypeAlias = "tuple[Decision, tuple[Charged, ...]]"


def checked_pairs(keys: Sequence[str], costs: Many | None) -> list[tuple[str, int]]:
    """Returns each key paired with its cost; with a cost of 1 if `costs` is None.

    Raises InvalidSetting if there are more or fewer costs than keys.
    """
    if costs is None:
        return [(key, 1) for key in keys]
    if len(costs) != len(keys):
        problem = f"has {len(costs)} numbers for {len(keys)} keys; give one for each"
        raise InvalidSetting("costs", costs, problem)
    return list(zip(keys, costs, strict=True))


class AsksNothing:
    """The base class of modes in which no request waits: `ask` and `wait` decide at once, like `hit`."""

    hit: Callable[..., Decision]

    def hit_and_mark(self, key: str, estimate: int, kind: str | None) -> Marked:
        """Returns the decision, and no charge for a reservation to correct."""
        return self.hit(key, estimate, kind), ()

    def wait_blocking(
        self,
        key: str,
        cost: int,
        kind: str | None,
        timeout: float | None,  # noqa: ARG002  # see the class
        max_queue: int | None,  # noqa: ARG002  # likewise
        within_ns: int,  # noqa: ARG002  # likewise
    ) -> Decision:
        return self.hit(key, cost, kind)

    async def wait(
        self, key: str, cost: int, kind: str | None, timeout: float | None, max_queue: int | None, within_ns: int
    ) -> Decision:
        return self.wait_blocking(key, cost, kind, timeout, max_queue, within_ns)

    async def ask(self, key: str, cost: int, kind: str | None, within_ns: int, *, marks: bool) -> Marked:
        return self.ask_blocking(key, cost, kind, within_ns, marks=marks)

    def ask_blocking(
        self,
        key: str,
        cost: int,
        kind: str | None,
        within_ns: int,  # noqa: ARG002  # likewise
        *,
        marks: bool,
    ) -> Marked:
        return self.hit_and_mark(key, cost, kind) if marks else (self.hit(key, cost, kind), ())


class ClosableLimit(Protocol):
    """The interface that `Closed` needs of a limit, to answer for it while a quota is 0; `Enforcement` has it."""

    table: Decider
    answers: Any

    @property
    def deciding(self) -> object:
        """Returns the object that gives the limit's answers while it is on."""
        ...

    @property
    def tables(self) -> tuple[Table, ...]:
        """Returns the tables of the limit's own quotas."""
        ...

    @property
    def closed_by(self) -> str:
        """Returns the name of the quota that is 0."""
        ...

    def note(self, *, closed: int) -> None:
        """Adds `closed` to the number of requests that the limit has refused because a quota is 0."""
        ...


class Closed(AsksNothing):
    """Answers for a limit with a quota of 0: refuses each request, for certain and with an infinite `retry_after`.

    Wrong arguments raise the same errors as for any limit.
    """

    def __init__(self, enforcement: ClosableLimit) -> None:
        self._board = enforcement

    def allow(self, key: str, cost: int = 1, kind: str | None = None) -> bool:
        """Returns False. A caller may keep this function; if the limit changes, it decides by the new quota."""
        board = self._board
        if board.deciding is not self:
            allowed: bool = board.answers.allow(key, cost, kind)
            return allowed
        self._check(key, cost, kind)
        board.note(closed=1)
        return False

    def hit(self, key: str, cost: int = 1, kind: str | None = None) -> Decision:
        """Returns a refusal. A caller may keep this function; if the limit changes, it decides by the new quota."""
        board = self._board
        if board.deciding is not self:
            decision: Decision = board.answers.hit(key, cost, kind)
            return decision
        self._check(key, cost, kind)
        board.note(closed=1)
        return self._refusal()

    def allow_many(self, keys: Sequence[str], costs: Many | None) -> list[bool]:
        for key, cost in checked_pairs(keys, costs):
            self._check(key, cost, None)
        self._board.note(closed=len(keys))
        return [False] * len(keys)

    def test(self, key: str, cost: int, kind: str | None) -> Decision:
        """Returns a refusal, without counting it: a test is no request."""
        self._check(key, cost, kind)
        return self._refusal()

    def let_out(self, key: str, costs: Costs) -> Decision:  # noqa: ARG002  # nothing is charged
        """Refuses a request that was waiting when the quota fell to 0."""
        self._board.note(closed=1)
        return self._refusal()

    def _check(self, key: str, cost: int, kind: str | None) -> None:
        """Raises InvalidKey, InvalidCost or UnknownKind, as a usual decision would."""
        self._board.tables[0].check_key(key)
        self._board.table.costs_of(cost, kind)

    def _refusal(self) -> Decision:
        return Decision(
            allowed=False,
            limit=0,
            remaining=0,
            retry_after=inf,
            reset_after=0.0,
            staleness=0.0,
            binding=self._board.closed_by,
        )
