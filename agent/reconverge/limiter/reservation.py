"""Reservations: charges of an estimate, which are corrected once the true cost is known."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, Self

from reconverge.errors import InvalidSetting
from reconverge.kernel import Table, settle
from reconverge.runtime.log_throttle import LoggedOnce
from reconverge.runtime.truth import no_number
from reconverge.runtime.unique import Unique

if TYPE_CHECKING:
    from reconverge.decision import Decision
    from reconverge.kernel import Charged

OnAbandon = Literal["keep", "return"]
KEEP: Final = "keep"
RETURN: Final = "return"


logger = logging.getLogger("reconverge")
_logged = LoggedOnce()


@no_number("a reservation", "write: if reservation, if not reservation")
class Reservation(Unique):
    """An estimate of a cost, to be replaced by the true cost later. True if the estimate was admitted and charged.

        with limiter.reserve("ada", 800) as reservation:
            if reservation:
                reservation.settle(work())

    A cost that comes in parts, such as that of a streamed answer, can be spent part by part; the end of the block
    settles it:

        async with limiter.reserve("ada", prompt + 250) as reservation:
            reservation.spend(prompt)
            async for chunk in answer:
                reservation.spend(len(chunk))

    `async with` does the same as `with`. A reservation whose block ends without a call of `settle` or `spend` is
    abandoned: it keeps its estimate and can still be settled, or gives the estimate back if `on_abandon` is "return". A
    reservation that is used without a block and never settled keeps the estimate: charges must not depend on when the
    interpreter deletes the object.
    """

    __slots__ = (
        "_charged", "_charges", "_decision", "_key", "_on_abandon", "_report", "_seen", "_settled", "_spent", "estimate"
    )  # fmt: skip

    def __init__(
        self, charges: Sequence[Charged], key: str, estimate: int, decision: Decision, on_abandon: OnAbandon
    ) -> None:
        self._charges = charges
        self._key = key
        self._on_abandon = on_abandon
        self._settled = False
        self._charged = estimate
        self._spent: int | None = None
        self._report: Callable[[int], None] | None = None
        self._seen = False
        """Whether the caller has looked at the decision."""
        self.estimate = estimate
        self._decision = decision

    @property
    def decision(self) -> Decision:
        """Returns the decision about the estimate."""
        self._seen = True
        return self._decision

    @property
    def allowed(self) -> bool:
        """Whether the estimate was admitted, and charged."""
        return self.decision.allowed

    def settle(self, actual: int) -> None:
        """Replaces the estimate by the true cost: charges more, which may leave the key in debt, or gives some back.

        With several quotas, the charges of all are corrected in one moment. Only the first call has an effect, and only
        if the estimate was admitted. Raises InvalidCost, also for more than 10**12.
        """
        self._check(actual)
        if not self._decision.allowed:
            self._log_unseen(ran=actual > 0)
            return
        if self._settled:
            if actual not in {0, self._charged}:
                self._log_again(actual)
            return
        self._settled = True
        self._correct(actual - self._charged)
        self._charged = actual

    def _log_again(self, actual: int) -> None:
        if self._charges and _logged.is_new(self._charges[0].table.name):
            logger.warning(
                "reconverge: a reservation of %r that was settled for %d is settled again for %d, without effect; "
                "call settle() once with the whole cost, or spend() with each part",
                self._charges[0].table.name,
                self._charged,
                actual,
            )

    def _log_unseen(self, *, ran: bool) -> None:
        """Logs, once for each limit, that work `ran` although refused, unless the caller has read the decision."""
        if ran and not self._seen:
            log_unseen(self._decision.binding, "limiter.reserve(key, cost) as reservation: if reservation: ...")

    def spend(self, cost: int) -> None:
        """Adds `cost` to the true cost so far; a part beyond the estimate is charged at once.

        The end of the block settles for the sum of all calls. Calls after a settlement, or for a reservation that was
        refused, have no effect. Raises InvalidCost, also if the sum would be more than 10**12.
        """
        self._check((self._spent or 0) + Table.check_cost(cost))
        if not self._decision.allowed:
            self._log_unseen(ran=cost > 0)
            return
        if self._settled:
            return
        self._spent = (self._spent or 0) + cost
        if self._spent > self._charged:
            self._correct(self._spent - self._charged)
            self._charged = self._spent

    def on_correction(self, report: Callable[[int], None]) -> None:
        """Calls `report` with the change of the cost at each correction; negative if a part is given back.

        If several quotas have different costs for the kind of request, `report` gets the first quota's. A second call
        replaces the function, which must not fail.
        """
        self._report = report

    def _check(self, actual: int) -> None:
        Table.check_cost(actual)
        for charge in self._charges:
            Table.check_correction(actual * charge.unit)

    def _correct(self, difference: int) -> None:
        """Charges `difference`, or gives it back if negative; then wakes requests that wait for the key."""
        if difference and self._charges:  # a limit that is off, or would have refused, has charged nothing
            settle(self._charges, self._key, difference)
            for charge in self._charges:
                charge.table.tell(self._key)
            if self._report is not None:
                self._report(difference * self._charges[0].unit)

    def __bool__(self) -> bool:
        return self.allowed

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._decision.allowed:
            self._log_unseen(ran=True)
        if self._settled:
            return
        if self._spent is not None:
            self.settle(self._spent)
        elif self._on_abandon == RETURN:
            self.settle(0)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, traceback)

    def __repr__(self) -> str:
        state = "settled" if self._settled else "allowed" if self._decision.allowed else "refused"
        return f"Reservation({self._key!r}, estimate={self.estimate}, {state})"


def log_unseen(name: str, remedy: str) -> None:
    """Logs, once for each limit, that work ran although refused, because the caller did not read the decision."""
    if _logged.is_new((log_unseen, name)):
        problem = "has refused a block, which ran all the same, as it did not look; write: with"
        logger.warning("reconverge: %r %s %s", name, problem, remedy)


def check_on_abandon(on_abandon: object) -> None:
    """Raises InvalidSetting if the value is neither "keep" nor "return"."""
    if on_abandon not in (KEEP, RETURN):
        raise InvalidSetting("on_abandon", on_abandon, f"must be {KEEP!r} or {RETURN!r}")
