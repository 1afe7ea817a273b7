"""Decides which thread or task makes the exchanges of an agent: one at a time, in spite of any interruption."""

# Theory of operation.
#
# The problem. A decision that finds no runner (thread or task) starts one. Several threads may do so at the same
# moment, and so may a signal handler that interrupts one of them. Two runners would use the same syncers and
# connections at once.
#
# Why the naive way fails. A lock would stay locked for ever if a signal handler raises an exception while it is held.
#
# How it works. Each runner asks for the exchanges before it touches them, with `Ownership.claim`. One operation on a
# dictionary, which nothing interrupts, decides which runner owns them. A runner that finds another owner ends, or waits
# until that owner has ended.

from __future__ import annotations

from typing import Final, Protocol

TAKE_OVER_POLL_S: Final = 0.01
"""The seconds between two checks of a new runner whether the runner before it has ended."""


class Runner(Protocol):
    """A thread or task in which an agent's exchanges are made."""

    @property
    def alive(self) -> bool:
        """Returns whether the runner may still use the driver, so that no other runner may exchange."""
        ...

    @property
    def listening(self) -> bool:
        """Returns whether the runner will make further exchanges, and reacts to `wake`."""
        ...

    @property
    def end_is_noticed(self) -> bool:
        """Returns whether the driver always learns that the runner has ended.

        If True, decisions need not check whether the runner still lives.
        """
        ...

    @property
    def left(self) -> bool:
        """Returns whether the runner has sent the node's last reports, or has given up sending them."""
        ...

    def wake(self) -> None:
        """Makes the runner check at once for due work.

        Never waits, never fails and takes no lock of Python's, because signal handlers and finalizers also call `wake`,
        at any point of the program.
        """
        ...

    def request_stop(self) -> None:
        """Asks the runner to send the node's last reports and then end; returns at once."""
        ...

    def join(self, timeout_s: float) -> None:
        """Waits until the runner has ended, for at most `timeout_s` seconds.

        Returns at once if the caller runs in the runner's own thread or event loop, which the wait would block.
        """
        ...


class Ownership:
    """Stores which runner (a thread or task) makes the exchanges of an agent, so that never two of them do."""

    def __init__(self) -> None:
        self._claims: dict[int, Runner] = {}
        """All owners so far, numbered from 0 in the order of their claims."""
        self.stops = 0
        """The number of times that all runners were asked to stop. A new runner compares it with the number at its
        creation, because a stop in between did not reach that runner."""

    @property
    def owner(self) -> Runner | None:
        """Returns the runner that makes the exchanges, or the last that did; None if there was none yet."""
        claims = list(self._claims.items())
        return max(claims, key=_number)[1] if claims else None

    def claim(self, runner: Runner) -> bool:
        """Makes `runner` the owner of the exchanges if no other owner is alive; returns whether it is the owner.

        No interruption can lead to two owners: if several runners find that the last owner is gone, the first to store
        its claim under the next number becomes the owner. A claim is stored in one step of the interpreter.
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
