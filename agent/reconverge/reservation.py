"""A charge that is corrected once the true cost is known."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from reconverge.decision import Decision
    from reconverge.kernel import Mark, Table


class Reservation:
    """An estimate that was charged, if it was admitted; true when it was.

        with limiter.reserve("ada", 800) as reservation:
            if reservation:
                reservation.settle(work())

    A reservation that is never settled keeps its estimate.
    """

    __slots__ = ("_key", "_mark", "_settled", "_table", "decision", "estimate")

    def __init__(self, table: Table, key: str, estimate: int, decision: Decision, mark: Mark) -> None:
        self._table = table
        self._key = key
        self._mark = mark
        self._settled = False
        self.estimate = estimate
        self.decision = decision
        """The answer to the estimate."""

    @property
    def allowed(self) -> bool:
        """Whether the estimate was admitted, and charged."""
        return self.decision.allowed

    def settle(self, actual: int) -> None:
        """Charge the true cost in place of the estimate: more, which may leave the key in debt, or less.

        Only the first call counts, and none for a reservation that was refused. Raises InvalidCost.
        """
        self._table.check_cost(actual)
        if self._settled or not self.allowed:
            return
        self._settled = True
        if actual != self.estimate:
            self._table.correct(self._key, self._mark.epoch, actual - self.estimate, mark=self._mark)
            self._table.tell(self._key)

    def __bool__(self) -> bool:
        return self.allowed

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """What was not settled stays charged as it was estimated."""

    def __repr__(self) -> str:
        state = "settled" if self._settled else "allowed" if self.allowed else "refused"
        return f"Reservation({self._key!r}, estimate={self.estimate}, {state})"
