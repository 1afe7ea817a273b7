"""A process with an agent on a broker, that obeys commands: `python -m tests.support.programs.mqtt_member URL`.

Each line of commands is answered by a line: `ask N` by the admissions so far, `keeps` by whether this member keeps the
ledger, `reborn` by how often the hub's data were new, `known` by the hub's charges, `fork N` by the admissions of a
fork, `stop` by the admissions in the end.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys

from reconverge import Agent
from reconverge.errors import HubUnavailable
from reconverge.hub.registry import HubSettings
from reconverge.limiter import RateLimiter
from reconverge_sync.mqtt.hub import MqttHub

QUOTA = 1_000_000
NAMESPACE = "members"


def keeps() -> bool:
    """Returns whether a hub of this process keeps the ledger."""
    hubs = [found for found in gc.get_objects() if isinstance(found, MqttHub)]
    return any(
        hub._per_loop.thing is not None and hub._per_loop.thing.servers[0].candidate.ledger is not None for hub in hubs
    )


async def known(url: str) -> int:
    """Returns the hub's charges; -1 while no member answers."""
    hub = MqttHub(url, HubSettings(NAMESPACE, 5.0))
    try:
        totals = await hub.totals()
        return totals["login"].net if "login" in totals else 0
    except HubUnavailable:
        return -1
    finally:
        await hub.close()


def forked(limiter: RateLimiter, agent: Agent, times: int) -> int:
    """Returns the admissions of a fork of this process, which reports them to the hub before it ends."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        admitted = sum(limiter.allow("ada") for _ in range(times))
        agent.stop(30.0)
        os.write(writing, str(admitted).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        return int(pipe.read())


def main(url: str) -> None:
    agent = Agent(url, namespace=NAMESPACE, sync_interval=0.05, cold_allowance=1.0, exchange_timeout=3.0)
    limiter = agent.limit("login", f"{QUOTA}/day")
    admitted = 0
    for line in sys.stdin:
        word, *rest = line.split()
        answer: object = ""
        if word == "ask":
            admitted += sum(limiter.allow("ada") for _ in range(int(rest[0])))
            answer = admitted
        elif word == "keeps":
            answer = int(keeps())
        elif word == "reborn":
            answer = agent.stats().exchanges[0].rebirths
        elif word == "known":
            answer = asyncio.run(known(url))
        elif word == "fork":
            answer = forked(limiter, agent, int(rest[0]))
        elif word == "stop":
            agent.stop(30.0)
            answer = admitted
        sys.stdout.write(f"{answer}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1])
