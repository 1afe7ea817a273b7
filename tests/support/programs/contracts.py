"""A process that follows the contracts of its hub: `python -m tests.support.programs.contracts follow HUB SECRET N`."""

from __future__ import annotations

import sys
from queue import Queue
from typing import Any

from reconverge import Agent
from reconverge.contracts.store.index import IndexVerifier
from reconverge.contracts.store.reader import ContractsReader
from reconverge.remote_settings.signed import Secrets
from tests.support.programs.agents import say
from tests.support.programs.process import PROCESS_S_MAX


def follow(hub: str, secret: str, changes: str) -> None:
    """Print each version that it is told of, and end after so many."""
    told: Queue[int] = Queue()
    agent = Agent(hub, namespace="shop", sync_interval=0.05, exchange_timeout=5.0)

    def make(clock: Any, interval_ns: Any) -> ContractsReader:
        verifier = IndexVerifier("shop", Secrets(secret))
        return ContractsReader(
            verifier, clock, interval_ns=interval_ns, apply=lambda version, _document: told.put(version)
        )

    agent.follow(make)
    agent.start()
    say("ready")
    for _ in range(int(changes)):
        say("version", told.get(timeout=PROCESS_S_MAX))
    agent.stop()


if __name__ == "__main__":
    name, *arguments = sys.argv[1:]
    globals()[name](*arguments)
