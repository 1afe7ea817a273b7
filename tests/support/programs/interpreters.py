"""A program with two interpreters in one process, as mod_wsgi has one for each application."""

from __future__ import annotations

import importlib
import os
import sys
import textwrap
import threading
from typing import Any

from reconverge import Agent
from tests.support.programs.agents import say
from tests.support.waiting import eventually

SECOND = """
    import sys
    sys.path[:] = {path!r}
    from reconverge import Agent
    agent = Agent({hub!r}, namespace="second", sync_interval=0.02, exchange_timeout=5.0)
    login = agent.limit("login", "1000/day")
    dated = agent.limit("dated", "1000/day", algorithm="sliding-log")
    admitted = sum(login.allow(f"key {{n % 7}}") and dated.allow("ada") for n in range(70))
    assert agent.stats().kernel == "pure", agent.stats().kernel
    assert agent.stats().running == {exchanges}
    import os, threading
    os.write({said}, b"x")
    os.read({end}, 1)
    threading._shutdown()  # as the interpreter's own end does, and mod_wsgi before
"""


def has_two_interpreters(hub: str, second: str) -> None:
    """Exchanges in the main interpreter before, while and after the second one decides, with a hub or alone."""
    interpreters: Any = importlib.import_module("_xxsubinterpreters")
    agent = Agent(hub, sync_interval=0.02, exchange_timeout=5.0)
    login = agent.limit("login", "1000/day")
    dated = agent.limit("dated", "1000/day", algorithm="sliding-log")  # is reported by way of Python's functions

    def decide(name: str) -> None:
        admitted = sum(login.allow(f"{name} {number}") and dated.allow(f"{name} {number}") for number in range(5))
        eventually(lambda: agent.ready and not agent.stats().exchanges[0].pending, "the exchange")
        say(name, admitted, agent.stats().bugs, len(agent.stats().exchanges[0].failures), agent.health().state)

    decide("before")
    beside = interpreters.create(isolated=False)  # as mod_wsgi does; others have no threads in Python 3.11
    (heard, said), (ended, end) = os.pipe(), os.pipe()
    exchanges = second != "memory://"
    program = textwrap.dedent(SECOND).format(path=sys.path, hub=second, exchanges=exchanges, said=said, end=ended)
    thread = threading.Thread(target=interpreters.run_string, args=(beside, program))
    thread.start()
    os.read(heard, 1)
    decide("beside")
    os.write(end, b"x")
    thread.join()
    interpreters.destroy(beside)
    decide("after")
    agent.stop()


if __name__ == "__main__":
    has_two_interpreters(*sys.argv[2:])
