"""Processes that follow contracts at a hub: `python -m tests.support.programs.contracts follow HUB SECRET N`."""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from threading import Event
from typing import Any, Final

import httpx

from reconverge import Agent
from reconverge.clock import SystemClock
from reconverge.contracts.contracts import Contracts
from reconverge.contracts.following import follow_hub
from reconverge.contracts.store.memory_book import MemoryBook
from reconverge.integrations.contracts.api import contracts_api
from tests.support.programs.agents import say
from tests.support.programs.process import PROCESS_S_MAX
from tests.support.waiting import eventually

INTERVAL_S: Final = 0.05
PLANS: Final[dict[str, Any]] = {
    "free": {"limits": {"requests": "20/hour"}},
    "pro": {"limits": {"requests": "60/hour"}},
}


QUOTA: Final = 20
DAILY: Final[dict[str, Any]] = {"free": {"limits": {"requests": f"{QUOTA}/day"}}}


def _has(contracts: Contracts, version: int) -> bool:
    return contracts.version >= version


def _following(hub: str, secret: str, plans: dict[str, Any], **settings: Any) -> tuple[Agent, Contracts]:
    """Returns a node that has met the hub, and applies its contracts."""
    agent = Agent(hub, namespace="shop", sync_interval=INTERVAL_S, exchange_timeout=5.0, **settings)
    contracts = Contracts(agent, {"plans": plans, "unknown": "free"})
    agent.start()
    agent.check()
    follow_hub(contracts, secret=secret)
    return agent, contracts


def decide(hub: str, secret: str, versions: str, times: str) -> None:
    """Applies new versions; prints, for each, the time and the number of admitted requests."""
    agent, contracts = _following(hub, secret, PLANS, policy="strict")
    say("ready")
    for number in range(1, int(versions) + 1):
        eventually(partial(_has, contracts, number), "the next version", PROCESS_S_MAX)
        say("obeyed", SystemClock().wall_ns())
        sys.stdin.readline()
        admitted, pause = 0, Event()
        for _ in range(int(times)):
            admitted += contracts.ask_blocking("acme", within=1.0).allowed
            pause.wait(INTERVAL_S)  # a larger quota holds once the last node has reported it
        say("admitted", admitted)
    agent.stop()


def come_again(hub: str, secret: str, rounds: str) -> None:
    """In each round, prints when nothing is counted for `acme`, and, for a line, the requests that fit."""
    agent, contracts = _following(hub, secret, DAILY, policy="strict")
    eventually(partial(_has, contracts, 1), "the contracts", PROCESS_S_MAX)
    for _ in range(int(rounds)):
        eventually(lambda: contracts.usages("acme")["requests"].total == 0, "nothing is counted", PROCESS_S_MAX)
        say("free")
        sys.stdin.readline()
        admitted, pause = 0, Event()
        while contracts.usages("acme")["requests"].total < QUOTA:
            admitted += contracts.ask_blocking("acme", within=1.0).allowed
            pause.wait(INTERVAL_S)  # the other node returns its allowance with its next exchange
        say("admitted", admitted)
    agent.stop()


def answer(hub: str, secret: str, times: str) -> None:
    """Prints how many requests of `acme` are admitted, and then, for a line, the answer of the API."""
    agent, contracts = _following(hub, secret, DAILY)
    eventually(partial(_has, contracts, 1), "the contracts", PROCESS_S_MAX)
    say("admitted", sum(contracts.ask_blocking("acme", within=5.0).allowed for _ in range(int(times))))
    sys.stdin.readline()

    async def explained() -> str:
        api = contracts_api(MemoryBook(), open=True, contracts=contracts)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://api") as client:
            return (await client.get("/customers/acme/explain")).text

    say(asyncio.run(explained()))
    sys.stdin.readline()
    agent.stop()


if __name__ == "__main__":
    name, *arguments = sys.argv[1:]
    globals()[name](*arguments)
