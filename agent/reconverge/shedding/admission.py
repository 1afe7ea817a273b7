"""A stack's decision about one request, and the slots that it holds until the request is over."""

# Theory of operation.
#
# Slots are for requests that the service works on. A request that waits for its client (the body of an upload does not
# come, the response is not read) needs nothing but memory, and its client decides how long that lasts: sixteen idle
# uploads could hold all slots for as long as a stranger likes. So such a request *steps aside*: its tickets do not
# count it, and the wait is not part of its round trip. When it *goes on*, it is counted again at once.
#
# There may be no free slot then. If the work on the request has not begun, it may still be refused: else an attacker
# could have a thousand requests admitted one by one, and let all of them begin at the same moment. If the work has
# begun, the request goes on `anyway`: it counts beyond the limit, and new requests are refused until there is room. It
# never waits for a slot, since the request that holds the slot may wait for this one.
#
# A request can wait for several reasons at once, so these are counted; it goes on when the last of them ends.
#
# An admission that is dropped and was never finished (a WSGI server that does not close a body, an application that
# forgets) would be in progress for ever. Its finalizer hands it to the stack, which ends it with the next request. The
# finalizer itself takes no lock, because it may run at any moment, even while its thread holds that lock. An admission
# that the program did not keep counts for a second more, because its request may still run.

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, Protocol, Self

from reconverge.limiter.reservation import log_unseen
from reconverge.runtime.truth import no_number
from reconverge.runtime.unique import Unique
from reconverge.shedding.layers import DROPPED, IGNORED, SERVED, Outcome, ShedRefusal, Ticket

REMEDY: Final = "stack.enter(key, method) as admission: if admission: ..."


class DecidingStack(Protocol):
    """The methods of a `Stack` that its admissions call."""

    def now_ns(self) -> int:
        """Returns the time of the monotonic clock, in nanoseconds."""
        ...

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Makes the layers that measure an event loop measure `loop`."""
        ...

    def refuses_late(self, refusal: ShedRefusal, rank: int) -> bool:
        """Counts the refusal of a request that was admitted first, and is refused after it has waited for its client.

        Returns True if the refusal ends the request; False if the refusing layer is in shadow, and refuses nothing.
        """
        ...

    def lose(self, admission: Admission, *, over: bool) -> None:
        """Stores an admission that the program dropped unfinished, so that the next request finishes it.

        If `over` is False, the request counts as running for another second. Takes no lock, because a finalizer calls
        this.
        """
        ...


@no_number("an admission", "write: if admission, if not admission")
class Admission(Unique):
    """A stack's decision about one request; true if the request may go on. The end of a `with` block finishes it.

        with stack.enter("ada", "POST") as admission:
            if admission:
                work()

    If the block raises TimeoutError, the request counts as dropped; after any other exception its duration is not used
    as a measure of the load.
    """

    __slots__ = ("_refusal", "_seen", "_stack", "_tickets", "away", "finished", "rank", "would_refuse")

    def __init__(
        self,
        stack: DecidingStack,
        tickets: Sequence[Ticket],
        refusal: ShedRefusal | None,
        would_refuse: tuple[ShedRefusal, ...],
        rank: int = 0,
    ) -> None:
        self._stack = stack
        self._tickets = tickets
        self.away = 0
        """The number of `step_aside` calls that no `go_on` has ended yet."""
        self.rank = rank
        """The number of the request's class, 0 for the most important one."""
        self.finished = refusal is not None
        """Whether the request is over, and its slots are free."""
        self._refusal = refusal
        self._seen = False
        """Whether the caller has looked at the decision, to learn if the request may go on."""
        self.would_refuse = would_refuse
        """The refusals by layers in shadow, which have no effect."""

    @property
    def refusal(self) -> ShedRefusal | None:
        """Returns the refusal; None if the request may go on."""
        self._seen = True
        return self._refusal

    @property
    def allowed(self) -> bool:
        """Returns whether the request may go on."""
        return self.refusal is None

    @property
    def refused_by(self) -> str | None:
        """Returns the name of the layer that refused the request; None if none did."""
        return None if self.refusal is None else self.refusal.layer

    @property
    def tickets(self) -> Sequence[Ticket]:
        """Returns the records of the layers that have admitted the request."""
        return self._tickets

    def finish(self, outcome: Outcome = SERVED) -> None:
        """Ends the request, and frees its slots. Only the first call has an effect."""
        self.finished = True
        tickets, self._tickets = self._tickets, ()
        if tickets:
            now_ns = self._stack.now_ns()
            for ticket in tickets:
                ticket.finish(now_ns, outcome)

    def step_aside(self, *, begun: bool = True) -> None:
        """Frees the request's slots until `go_on` is called, because the request only waits for its client.

        `begun` means that work on the request has begun. If it is False, as while the body is missing, the request also
        no longer counts as demand of its class, for which slots are left free.
        """
        self.away += 1
        if self.away == 1:
            now_ns = self._stack.now_ns()
            for ticket in self.tickets:
                step_aside: Callable[..., None] | None = getattr(ticket, "step_aside", None)
                if step_aside is not None:
                    step_aside(now_ns, begun=begun)

    def go_on(self, *, anyway: bool = True) -> ShedRefusal | None:
        """Ends the wait for the client. If no slot is free, ends the request and returns its refusal, else None.

        If `anyway` is True, the request goes on even beyond the limit.
        """
        self.away -= 1
        if self.away:
            return None
        now_ns = self._stack.now_ns()
        for ticket in self.tickets:
            go_on: Callable[..., ShedRefusal | None] | None = getattr(ticket, "go_on", None)
            refusal = None if go_on is None else go_on(now_ns, anyway=anyway)
            if go_on is None or refusal is None:
                continue
            if self._stack.refuses_late(refusal, self.rank):
                self.finish(IGNORED)
                return refusal
            go_on(now_ns, anyway=True)
        return None

    def drop(self) -> None:
        """Has the next request finish this one, because a finalizer, which calls this, may not wait for a lock."""
        if not self.finished:
            self._stack.lose(self, over=True)

    def __del__(self) -> None:
        if not self.finished:
            self._stack.lose(self, over=False)

    def __bool__(self) -> bool:
        self._seen = True
        return self._refusal is None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._refusal is not None and not self._seen:
            log_unseen(self._refusal.layer, REMEDY)
        self.finish(SERVED if error is None else DROPPED if isinstance(error, TimeoutError) else IGNORED)

    async def __aenter__(self) -> Self:
        self._stack.watch(asyncio.get_running_loop())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, traceback)

    def __repr__(self) -> str:
        return f"Admission(refused_by={self.refused_by!r})" if self.refusal else "Admission(allowed)"
