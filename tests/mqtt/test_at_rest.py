"""Goal: a member answers the others however seldom its agent exchanges.

Method: an agent on a thread of its own that exchanges every half minute, which is elected, and a member beside it.
"""

from __future__ import annotations

import asyncio
from itertools import count

from reconverge import Agent
from reconverge.hub.checking.probe import trial_batch
from reconverge.hub.registry import HubSettings
from reconverge.hub.report import Status
from reconverge_sync.mqtt.hub import MqttHub
from tests.support.brokers import Mosquitto
from tests.support.waiting import eventually


def test_a_steward_answers_between_its_own_exchanges(own_mosquitto: Mosquitto) -> None:
    """Otherwise it would lose its place, and the ledger, as soon as its agent had nothing to say."""
    with Agent(own_mosquitto.url, namespace="shop", sync_interval=30.0, exchange_timeout=20.0, sigterm=False) as agent:
        agent.limit("login", "100/day")
        eventually(lambda: agent.ready, "the agent is elected")
        exchanged = agent.stats().exchanges[0].exchanges

        async def tried() -> list[Status]:
            hub = MqttHub(own_mosquitto.url, HubSettings("shop", 20.0))
            answers = [(await hub.exchange(trial_batch("node1", sequence))).status for sequence in range(1, 6)]
            assert hub.membership().servers[0].election.role.value == "follower"
            await hub.close()
            return answers

        assert [Status.MERGED] * 5 == asyncio.run(tried())
        assert exchanged == agent.stats().exchanges[0].exchanges
        assert 0 == agent.stats().exchanges[0].rebirths


def test_a_decision_wakes_an_agent_at_rest(own_mosquitto: Mosquitto) -> None:
    """An urgent report does not wait for the next regular exchange, as with any hub."""
    with Agent(own_mosquitto.url, namespace="shop", sync_interval=30.0, exchange_timeout=20.0, sigterm=False) as agent:
        login = agent.limit("login", "100/day")
        eventually(lambda: agent.ready, "the agent is elected")
        keys = map(str, count())

        # The regular exchange that follows the election may report the first keys.
        eventually(lambda: login.allow(next(keys)) and agent.stats().exchanges[0].early, "one is exchanged early")
