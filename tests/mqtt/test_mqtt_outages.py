"""Goal: while the broker is away, or hangs, nodes decide as ever; when it is back, so are the exchanges.

Method: two agents in one process and a real mosquitto that is killed, stopped, started without a memory; and a stranger
that takes a member's name.
"""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import count

import aiomqtt
import pytest

from reconverge import Agent
from reconverge.errors import HubUnavailable
from reconverge.hub.checking.probe import trial_batch
from reconverge.hub.registry import HubSettings
from reconverge.hub.report import Totals
from reconverge.runtime.restoration import JUMP_NS, Restorations
from reconverge_sync.mqtt.hub import MqttHub
from tests.support.brokers import Mosquitto
from tests.support.fixtures.servers import GuardedMosquitto
from tests.support.servers import free_port
from tests.support.waiting import eventually, eventually_in_loop


class AgentsOnBroker:
    """Two agents on one broker, and what they have admitted."""

    def __init__(self, url: str) -> None:
        self.url = f"{url}?tenure=3"
        self.agents = [Agent(self.url, namespace="shop", sync_interval=0.05) for _ in range(2)]
        self._limiters = [agent.limit("login", "1000000/day") for agent in self.agents]
        self.admitted = 0

    def admit(self) -> int:
        self.admitted += sum(limiter.allow("ada") for limiter in self._limiters for _ in range(5))
        return self.admitted

    def exchanges(self) -> bool:
        """Whether both are answered."""
        self.admit()
        return all(agent.ready and not agent.stats().exchanges[0].failures_in_a_row for agent in self.agents)

    def fails(self) -> bool:
        """Whether neither is answered."""
        before = self.admitted
        assert before + 10 == self.admit()
        return all(agent.stats().exchanges[0].failures_in_a_row > 1 for agent in self.agents)

    def knows_all(self) -> bool:
        """Whether the hub knows exactly what was admitted."""
        return asyncio.run(_known(self.url)) == {"login": Totals(self.admitted, 0)}


async def _known(url: str) -> dict[str, Totals] | None:
    hub = MqttHub(url, HubSettings("shop", 3.0))
    try:
        return await hub.totals()
    except HubUnavailable:
        return None
    finally:
        await hub.close()


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["killed", "stopped"])
def test_a_broker_that_is_away_is_an_outage_like_any_other(own_mosquitto: Mosquitto, fault: str) -> None:
    """Every request is decided meanwhile, and counted once it is back."""
    pair = AgentsOnBroker(own_mosquitto.url)
    eventually(pair.exchanges, "exchanges")

    own_mosquitto.kill() if fault == "killed" else own_mosquitto.pause()
    eventually(pair.fails, "failures")
    own_mosquitto.start() if fault == "killed" else own_mosquitto.resume()

    eventually(pair.exchanges, "exchanges again")
    eventually(pair.knows_all, "all is known")
    for agent in pair.agents:
        agent.stop()
    assert [0, 0] == [agent.stats().bugs for agent in pair.agents]


def test_members_that_are_restored_from_an_image_go_on_as_others_and_all_is_counted(own_mosquitto: Mosquitto) -> None:
    """One of them keeps the ledger; names at the broker are new, too, and nothing is lost or counted twice."""
    pair = AgentsOnBroker(own_mosquitto.url)
    eventually(pair.exchanges, "exchanges")
    eventually(pair.knows_all, "all is known")

    for agent in pair.agents:
        before = _accounts(pair)
        _restore(agent)
        eventually(partial(_has_one_of, pair, before), "a new name")
        eventually(pair.exchanges, "exchanges again")
        eventually(pair.knows_all, "all is known")

    assert [(1, 0), (1, 0)] == [(agent.stats().restorations, agent.stats().bugs) for agent in pair.agents]
    for agent in pair.agents:
        agent.stop()


def _restore(agent: Agent) -> None:
    """Makes the wall clock seem to go forward at once."""
    wall_ns = count(0, JUMP_NS + 1)
    agent._lifecycle.exchanges.watch_for_restorations = Restorations(
        wall_ns=lambda: min(next(wall_ns), JUMP_NS + 1), since_start_ns=int, boot_id=str
    )


def _has_one_of(pair: AgentsOnBroker, accounts: set[str]) -> bool:
    return 1 == len(accounts & _accounts(pair))


def _accounts(pair: AgentsOnBroker) -> set[str]:
    return {agent.stats().exchanges[0].node.partition(".")[0] for agent in pair.agents}


async def test_a_stranger_with_a_members_name_is_an_outage_like_any_other(own_mosquitto: Mosquitto) -> None:
    """The broker ends the member's connection; the member comes back under another name."""
    hub = MqttHub(own_mosquitto.url, HubSettings("shop", 20.0))
    await hub.exchange(trial_batch("node1", 1))
    name = hub.membership()._member
    async with aiomqtt.Client("127.0.0.1", own_mosquitto.port, identifier=name):
        await eventually_in_loop(lambda: hub.membership()._member not in ("", name), "another name")
        answer = await hub.exchange(trial_batch("node1", 2))
    await hub.close()

    assert "MERGED" == answer.status.name


def _problem(url: str, timeout_s: float = 3.0) -> HubUnavailable:
    async def tried() -> HubUnavailable:
        hub = MqttHub(url, HubSettings("shop", timeout_s))
        try:
            await hub.exchange(trial_batch("node1", 1))
        except HubUnavailable as problem:
            return problem
        finally:
            await hub.close()
        raise AssertionError("nothing went wrong")

    return asyncio.run(tried())


def test_each_reason_has_a_word(guarded_mosquitto: GuardedMosquitto, mosquitto: Mosquitto) -> None:
    """Who looks after a fleet learns what to mend; the password is in none of it."""
    good = guarded_mosquitto.url()
    found = {
        "nobody there": _problem(f"mqtt://127.0.0.1:{free_port()}"),
        "no such host": _problem("mqtt://nosuch.invalid"),
        "wrong password": _problem(guarded_mosquitto.url(password="hunter2")),  # noqa: S106
        "may do nothing": _problem(guarded_mosquitto.url(user="stranger"), timeout_s=5.0),
        "unknown authority": _problem(good.partition("?")[0]),
        "no such file": _problem(good + "x"),
        "another name": _problem(good.replace("127.0.0.1", "localhost")),
        "not encrypted there": _problem(f"mqtts://127.0.0.1:{mosquitto.port}", timeout_s=0.5),
    }
    kinds = {reason: problem.kind for reason, problem in found.items()}

    assert {
        "nobody there": "refused",
        "no such host": "refused",
        "wrong password": "auth",
        "may do nothing": "permission",
        "unknown authority": "tls",
        "no such file": "tls",
        "another name": "tls",
    } == {reason: kind for reason, kind in kinds.items() if reason != "not encrypted there"}
    assert kinds["not encrypted there"] in ("tls", "timeout", "connection")
    assert all("hunter2" not in f"{problem!r}{problem}" for problem in found.values())
