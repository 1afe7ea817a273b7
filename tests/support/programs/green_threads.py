"""Programs with green threads, each to be run in a process of its own."""

from __future__ import annotations

import importlib
import logging
import sys
from typing import Any


def _say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def beside_greenlets(when: str, hub: str) -> None:
    """Decides and waits on twenty greenlets; gevent patches `when`: before the import, after it, or after the agent."""
    monkey: Any = importlib.import_module("gevent.monkey")
    gevent: Any = importlib.import_module("gevent")
    if when == "before":
        monkey.patch_all()
    reconverge: Any = importlib.import_module("reconverge")

    if when == "after-import":
        monkey.patch_all()
    agent = reconverge.Agent(hub, sync_interval=0.02, exchange_timeout=5.0, stop_timeout=10.0)
    login = agent.limit("login", "1000000/hour; 10000000/day")
    paced = agent.limit("paced", "200/second", algorithm="leaky-bucket")
    if when == "after-agent":
        login.allow("early")
        monkey.patch_all()
    admitted, beats, ended = 0, 0, False

    def beat() -> None:
        nonlocal beats
        while not ended:
            gevent.sleep(0.001)
            beats += 1

    def work(number: int) -> None:
        nonlocal admitted
        for step in range(50):
            admitted += login.allow(f"key {number} {step}")
            assert paced.wait_blocking("all", timeout=30.0).allowed
            gevent.sleep(0)

    heart = gevent.spawn(beat)
    gevent.joinall([gevent.spawn(work, number) for number in range(20)], raise_error=True)
    ended = True
    heart.join()
    for _ in range(3000):
        if agent.stats().exchanges[0].pending:
            gevent.sleep(0.01)
    state, stats = agent.health().state, agent.stats()
    agent.stop()
    _say("admitted", admitted + (when == "after-agent"))
    _say("state", state, "failures", sum(stats.exchanges[0].failures.values()), "bugs", stats.bugs)
    _say("beats", beats > 100)


def beside_eventlet(when: str, hub: str) -> None:
    """Makes an agent after eventlet has patched, or patches after an agent was made."""
    logging.basicConfig(stream=sys.stdout, format="%(message)s")
    eventlet: Any = importlib.import_module("eventlet")
    reconverge: Any = importlib.import_module("reconverge")

    if when == "before":
        eventlet.monkey_patch()
        try:
            reconverge.Agent(hub)
        except reconverge.EventletPatched as error:
            _say("refused", error)
    else:
        agent = reconverge.Agent(hub)
        eventlet.monkey_patch()
        login = agent.limit("login", "10/minute")
        _say("admitted", sum(login.allow("ada") for _ in range(2)), agent.stats().running)


def beside_eventlet_alone(_hub: str) -> None:
    """Decides and waits on green threads, without a hub."""
    eventlet: Any = importlib.import_module("eventlet")
    eventlet.monkey_patch()
    reconverge: Any = importlib.import_module("reconverge")

    paced = reconverge.Agent("memory://").limit("paced", "100/second", algorithm="leaky-bucket")
    pool = eventlet.GreenPool()
    waiting = [pool.spawn(paced.wait_blocking, "all", timeout=30.0) for _ in range(20)]
    _say("admitted", sum(each.wait().allowed for each in waiting))


if __name__ == "__main__":
    globals()[sys.argv[1].replace("-", "_")](*sys.argv[2:])
