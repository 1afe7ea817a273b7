"""What a stack of layers has decided about one request, and what it holds for the request until that is over."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Protocol, Self

from reconverge.shedding.layers import DROPPED, IGNORED, SERVED, Outcome, Refusal, Ticket


class Asked(Protocol):
    """What an admission needs of the stack that has decided."""

    def now_ns(self) -> int:
        """The present moment, on the monotonic clock."""
        ...

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Have the layers that measure an event loop measure this one."""
        ...


class Admission:
    """What a stack has decided about one request; true when it may go on. The end of a `with` block finishes it.

        with stack.enter("ada", "POST") as admission:
            if admission:
                work()

    An exception in the block tells the stack nothing about the load, except for TimeoutError, which counts as dropped.
    """

    __slots__ = ("_stack", "_tickets", "finished", "refusal", "would_refuse")

    def __init__(
        self, stack: Asked, tickets: Sequence[Ticket], refusal: Refusal | None, would_refuse: tuple[Refusal, ...]
    ) -> None:
        self._stack = stack
        self._tickets = tickets
        self.finished = refusal is not None
        """Whether nothing is held for it any more."""
        self.refusal = refusal
        """Why it may not go on; None if it may."""
        self.would_refuse = would_refuse
        """What layers in shadow would have refused it for."""

    @property
    def allowed(self) -> bool:
        """Whether it may go on."""
        return self.refusal is None

    @property
    def refused_by(self) -> str | None:
        """The name of the layer that refused; None if none did."""
        return None if self.refusal is None else self.refusal.layer

    @property
    def tickets(self) -> Sequence[Ticket]:
        """What the layers hold for it."""
        return self._tickets

    def finish(self, outcome: Outcome = SERVED) -> None:
        """The request is over. Only the first call counts."""
        self.finished = True
        tickets, self._tickets = self._tickets, ()
        if tickets:
            now_ns = self._stack.now_ns()
            for ticket in tickets:
                ticket.finish(now_ns, outcome)

    def __bool__(self) -> bool:
        return self.refusal is None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
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
