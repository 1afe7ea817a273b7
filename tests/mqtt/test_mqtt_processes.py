"""Goal: processes that meet at a broker lose nothing and count nothing twice, whoever of them keeps the ledger.

Method: real processes and a real mosquitto, which is restarted without a memory while they admit; whoever keeps the
ledger is stopped, or killed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from tests.support.brokers import Mosquitto
from tests.support.programs.process import Process
from tests.support.waiting import eventually as eventually_within

ELECTED_S = 200.0
"""An election takes six seconds of it; with less than a tenure of four, a busy machine elects again and again."""


def eventually(condition: Callable[[], object], what: str) -> None:
    """Wait until that holds, which may take elections."""
    eventually_within(condition, what, ELECTED_S)


class Member(Process):
    """One of the processes."""

    def __init__(self, url: str) -> None:
        super().__init__(url, module="mqtt_member")

    def __call__(self, line: str) -> int:
        return int(self.answers(line))


@contextmanager
def members(broker: Mosquitto, number: int) -> Iterator[list[Member]]:
    """So many processes, of which one has been elected."""
    with ExitStack() as processes:
        all_of_them = [processes.enter_context(Member(f"{broker.url}?tenure=4")) for _ in range(number)]
        for member in all_of_them:
            member("ask 10")
        eventually(lambda: keeper(all_of_them), "somebody is elected")
        yield all_of_them


def keeper(some: list[Member]) -> list[Member]:
    """Whoever keeps the ledger; never more than one."""
    found = [member for member in some if member("keeps")]
    assert len(found) <= 1
    return found


def admitted(some: list[Member]) -> int:
    """How much all have admitted, and a little more."""
    return sum(member("ask 10") for member in some)


def admits_ten(member: Member) -> bool:
    """Whether it refuses none of ten."""
    before = member("ask 0")
    return member("ask 10") - before == 10


@pytest.mark.slow
def test_nothing_is_lost_or_doubled_when_the_broker_forgets_everything(own_mosquitto: Mosquitto) -> None:
    """The hub's count in the end is that of four processes, through two restarts."""
    with members(own_mosquitto, 4) as fleet:
        for _ in range(2):
            # The first grant of a hub that has lost its data is small: a member that heard no second one may refuse.
            eventually(lambda: all(admits_ten(member) for member in fleet), "each has been granted something")
            own_mosquitto.kill()
            admitted(fleet)
            own_mosquitto.start()
            eventually(lambda: fleet[0]("known") == admitted_so_far(fleet), "all is known again")

        assert 4 * 10 < admitted_so_far(fleet)


@pytest.mark.slow
def test_what_survivors_admitted_is_known_after_the_ledger_is_lost(own_mosquitto: Mosquitto) -> None:
    """Whoever keeps the ledger is killed; another one begins anew, and the living tell it what they know."""
    with members(own_mosquitto, 4) as fleet:
        eventually(lambda: fleet[0]("known") == admitted_so_far(fleet), "all is known")
        for _ in range(2):
            (lost,) = keeper(fleet)
            fleet.remove(lost)
            lost.is_killed()
            admitted(fleet)
            eventually(lambda: keeper(fleet), "another one is elected")
            eventually(lambda: fleet[0]("known") == admitted_so_far(fleet), "the survivors' counts are known")


@pytest.mark.slow
def test_whoever_stops_hands_the_ledger_over(own_mosquitto: Mosquitto) -> None:
    """Nothing has to be told again, and what the one that stopped had admitted stays known."""
    with members(own_mosquitto, 4) as fleet:
        eventually(lambda: fleet[0]("known") == admitted_so_far(fleet), "all is known")
        (stops,) = keeper(fleet)
        others = [member for member in fleet if member is not stops]
        eventually(lambda: all(admitted([member]) and not member("reborn") for member in others), "all have exchanged")
        everything = admitted_so_far(others) + stops("stop")

        eventually(lambda: keeper(others), "another one goes on")
        eventually(lambda: others[0]("known") == everything, "all is known")
        assert [0, 0, 0] == [member("reborn") for member in others]


@pytest.mark.slow
def test_a_fork_is_a_member_of_its_own(own_mosquitto: Mosquitto) -> None:
    """Its admissions are known, and the parent goes on as if nothing had happened."""
    with members(own_mosquitto, 2) as fleet:
        (forks,) = keeper(fleet)
        of_the_fork = forks("fork 25")
        assert 25 == of_the_fork

        eventually(lambda: fleet[0]("known") == admitted_so_far(fleet) + of_the_fork, "all is known")
        admitted(fleet)
        eventually(lambda: fleet[0]("known") == admitted_so_far(fleet) + of_the_fork, "what came later, too")
        assert [forks] == keeper(fleet)


def admitted_so_far(some: list[Member]) -> int:
    """How much all have admitted."""
    return sum(member("ask 0") for member in some)
