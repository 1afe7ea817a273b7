"""Goal: what belongs to one event loop or one process is used by no other, and what a fork inherits is left whole.

Method: several event loops one after the other, and real forks.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from itertools import count

from reconverge.runtime.owner import Owned, let_go, this_process


class OwnedConnection:
    """Notes what is done with it."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def abandon(self) -> None:
        self.said.append("abandoned")

    def abandon_in_fork(self) -> None:
        self.said.append("orphaned")


async def asked(owned: Owned[int]) -> list[int]:
    return [owned.get(), owned.get()]


def numbers() -> Callable[[], int]:
    """Makes another number each time."""
    return count(1).__next__


def in_a_fork(claim: Callable[[], bool]) -> bool:
    pid = os.fork()
    if not pid:
        os._exit(0 if claim() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_loop_gets_its_own_each_time_and_another_loop_another_one() -> None:
    """The thing is made once for each loop that asks."""
    owned = Owned(numbers())

    assert [[1, 1], [2, 2]] == [asyncio.run(asked(owned)), asyncio.run(asked(owned))]


def test_what_another_loop_owns_is_left_alone_once() -> None:
    """It is told which thing is left, and that it is no parent's; the loop's own thing is never left."""
    left: list[tuple[int, bool]] = []
    owned = Owned(numbers(), lambda number, inherited: left.append((number, inherited)))

    asyncio.run(asked(owned))
    assert [] == left

    asyncio.run(asked(owned))
    assert [(1, False)] == left


def test_what_is_taken_is_made_anew() -> None:
    """The caller that takes the thing closes it, so the next one that asks gets another."""

    async def scene(owned: Owned[int]) -> list[int | None]:
        return [owned.take(), owned.get(), owned.take(), owned.take(), owned.get()]

    assert [None, 1, 1, None, 2] == asyncio.run(scene(Owned(numbers())))


def test_nothing_is_taken_of_what_another_loop_owns() -> None:
    """It is left alone, as if another one had been asked for."""
    left: list[int] = []
    owned = Owned(numbers(), lambda number, _: left.append(number))
    asyncio.run(asked(owned))

    async def scene() -> int | None:
        return owned.take()

    assert asyncio.run(scene()) is None
    assert [1] == left


def test_a_process_has_its_own_in_all_of_its_loops() -> None:
    """Owned by the process, a thing is the same in two loops and outside of any."""
    owned = Owned(numbers(), whose=this_process)

    assert [1, 1, 1] == [*asyncio.run(asked(owned)), owned.get()]


def test_a_fork_makes_its_own_and_lets_the_parents_be() -> None:
    """The child is told that what it leaves is inherited; the parent goes on with the thing that it had."""
    left: list[tuple[int, bool]] = []
    owned = Owned(numbers(), lambda number, inherited: left.append((number, inherited)), whose=this_process)
    owned.get()

    assert in_a_fork(lambda: owned.get() == 2 and left == [(1, True)])
    assert 1 == owned.get()
    assert [] == left


def test_what_a_fork_inherits_is_never_freed() -> None:
    """A connection is taken apart when it is freed, and the parent uses the same socket: so the child keeps it."""
    freed: list[str] = []

    class Socket:
        def __del__(self) -> None:
            freed.append("freed")

    owned = Owned(Socket, whose=this_process)
    owned.get()

    def claim() -> bool:
        owned.get()
        return freed == []

    assert in_a_fork(claim)


def test_a_connection_is_abandoned_by_its_own_process_and_orphaned_by_a_fork() -> None:
    """`let_go` calls the one that is meant for the case."""
    own, parents = OwnedConnection(), OwnedConnection()

    let_go(own, False)
    let_go(parents, True)

    assert (["abandoned"], ["orphaned"]) == (own.said, parents.said)
