"""Which runner owns the exchanges of an agent: one at a time, through any interruption."""

# Theory of operation.
#
# The problem. A decision that finds no runner starts one. Several threads may do so at the same moment, and so may a
# signal handler in the middle of one of them; but two runners would use the same syncers and connections at once.
#
# Why the naive way fails. A lock would stay locked for ever if a signal handler raises an exception while it is held.
#
# How it works. Each runner asks for the exchanges before it touches them, with `Ownership.claim`. One operation on a
# dictionary, which nothing interrupts, decides which runner owns them. One that finds another owner ends, or waits for
# that one to end.

from __future__ import annotations

from typing import Final, Protocol

TAKE_OVER_POLL_S: Final = 0.01
"""How often a new runner looks whether its predecessor has ended."""


class Runner(Protocol):
    """A thread or task that runs an agent's exchange driver."""

    @property
    def alive(self) -> bool:
        """Whether this runner may still use the exchange driver."""
        ...

    @property
    def listening(self) -> bool:
        """Whether this runner goes on exchanging, so that `wake` has an effect."""
        ...

    @property
    def end_is_noticed(self) -> bool:
        """Whether the driver learns of every way in which this runner can end, so that decisions need not check."""
        ...

    @property
    def left(self) -> bool:
        """Whether this runner has sent the last reports, as far as the hub took them."""
        ...

    def wake(self) -> None:
        """Looks at once for work that is due.

        Never waits, never fails and takes no lock of Python's: it is called from signal handlers and finalizers, too,
        whatever they have interrupted.
        """
        ...

    def request_stop(self) -> None:
        """Asks this runner to send the last reports and end; does not wait for that."""
        ...

    def join(self, timeout_s: float) -> None:
        """Wait until this runner has ended, for at most `timeout_s`; returns at once where waiting would block it."""
        ...


class Ownership:
    """Keeps at most one runner in charge of an agent's exchanges; further runners claim them and wait."""

    def __init__(self) -> None:
        self._claims: dict[int, Runner] = {}
        """All owners so far, each under the number of owners before it."""
        self.stops = 0
        """How often all runners were asked to stop; a runner that begins compares it, as it may have been unknown
        then."""

    @property
    def owner(self) -> Runner | None:
        """The runner that owns the exchanges, or the last one that did."""
        claims = list(self._claims.items())
        return max(claims, key=_number)[1] if claims else None

    def claim(self, runner: Runner) -> bool:
        """Makes `runner` the owner of the exchanges, unless another owner is still alive.

        Promises that there is never a second one, whatever is interrupted where: of all runners that find the last one
        gone, the first to enter itself under the next number has won, in one step of the interpreter.
        """
        claims = list(self._claims.items())
        number, last = max(claims, key=_number) if claims else (0, None)
        if last is runner:
            return True
        if last is not None and last.alive:
            return False
        if self._claims.setdefault(number + 1, runner) is not runner:
            return False
        if self.owner is not runner:  # it was so slow that others have come and gone since it looked
            self._claims.pop(number + 1)
            return False
        self._claims.pop(number, None)
        return True


def _number(claim: tuple[int, Runner]) -> int:
    return claim[0]
