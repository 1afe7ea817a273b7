"""Processes that watch decisions: `python -m tests.support.programs.audits NAME HUB` runs one.

An audit hook, which cannot be removed, notes every event that the interpreter raises on the deciding thread for a file,
a socket, a process or an import. The program prints the notes.
"""

from __future__ import annotations

import socket
import sys
import threading
from typing import Final

from reconverge import Agent
from tests.support.agents import NEVER_FULL, introduce
from tests.support.programs.agents import say, wait_for_a_line

WATCHED: Final = ("open", "os.", "socket.", "subprocess.", "shutil.", "import", "urllib.", "ctypes.dlopen")
ROUNDS: Final = 1000


class Watch:
    """Notes the events on this thread while it is switched on."""

    def __init__(self) -> None:
        self.on = False
        self.seen: list[str] = []
        self._thread_id = threading.get_ident()
        sys.addaudithook(self._note)

    def _note(self, event: str, _arguments: tuple[object, ...]) -> None:
        if self.on and threading.get_ident() == self._thread_id and event.startswith(WATCHED):
            self.seen.append(event)


def decide_in_every_way(agent: Agent) -> None:
    """Calls all methods of a limiter, on new and on known keys."""
    login = agent.limiter("login")
    for number in range(ROUNDS):
        key = f"key {number % 100}"
        login.allow(key)
        login.hit(key)
        login.test(key)
        login.usage(key)
        with login.reserve(key, 5) as reservation:
            reservation.settle(3 + number % 4)
        if number % 10 == 0:
            login.reset(key)
            login.warm([key, f"{key} too"])
    agent.stats()


def watches_from_the_first_decision_on(hub: str) -> None:
    """Watches from the first decision on, which starts the thread and opens nothing itself."""
    agent = Agent(hub, sync_interval=0.01)
    agent.limit("login", NEVER_FULL)
    watch = Watch()
    watch.on = True
    decide_in_every_way(agent)
    watch.on = False
    say("deciding", *watch.seen)
    _prove_that_it_watches(watch)


def watches_when_the_hub_goes_away(hub: str) -> None:
    """Watches while the hub answers, and after it has gone, once a line has been read."""
    agent = Agent(hub, sync_interval=0.01, exchange_timeout=0.1)
    introduce(agent.limit("login", NEVER_FULL))
    say("heard")
    wait_for_a_line()
    watch = Watch()
    watch.on = True
    while agent.stats().exchanges[0].failures_in_a_row < 2:
        decide_in_every_way(agent)
    watch.on = False
    say("deciding", *watch.seen)
    _prove_that_it_watches(watch)


def _prove_that_it_watches(watch: Watch) -> None:
    watch.on = True
    socket.socket().close()
    watch.on = False
    say("opening", *watch.seen)


if __name__ == "__main__":
    name, *arguments = sys.argv[1:]
    globals()[name](*arguments)
