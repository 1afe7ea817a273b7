"""Goal: of what is in progress no more runs than the limit says, unless a setting asks for less than that.

Method: agents on one hub that take slots without asking, so that only their own allowances bound them; and the policies
that settings come to.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest

from reconverge import Agent, InvalidSetting, Limit, SlotLimiter
from reconverge_sync.memory import MemoryHub
from tests.support.fixtures.agents import MakeAgent
from tests.support.servers import RedisServer
from tests.support.waiting import eventually

IN_FLIGHT = "20 in flight"


def _takes_all_it_has(limiter: SlotLimiter, held: ExitStack) -> int:
    """Take slots of a key until memory has none; returns how many."""
    taken = 0
    while held.enter_context(limiter.slot("ada", within=0)):
        taken += 1
    return taken


def test_two_agents_run_exactly_the_limit_by_default(make_agent: MakeAgent) -> None:
    """Neither begins anything on a key that the hub has not answered about, and neither goes past its allowance."""
    hub = MemoryHub()
    agents = [make_agent(hub) for _ in range(2)]
    render = [agent.concurrency("render", 20, lease=30.0) for agent in agents]
    taken = 0

    def all_are_in_use() -> bool:
        nonlocal taken
        taken += sum(_takes_all_it_has(limiter, held) for limiter in render)
        return taken >= 20 and all(limiter.usage("ada").total >= 20 for limiter in render)

    with ExitStack() as held:
        eventually(all_are_in_use, "all slots in use, and both nodes know it")
        all_are_in_use()

    assert 20 == taken


@pytest.mark.parametrize(
    ("of_agent", "of_limit", "policy"),
    [
        ({}, {}, ("strict", 0.0)),
        ({"scarce": "nodes"}, {}, ("strict", 0.0)),
        ({"cold_allowance": 0.5}, {}, ("strict", 0.0)),
        ({}, {"scarce": "nodes"}, ("strict", 0.0)),
        ({}, {"policy": "balanced"}, ("balanced", 0.1)),
        ({}, {"policy": "available"}, ("available", float("inf"))),
        ({}, {"max_overshoot": 0.2}, ("balanced", 0.2)),
        ({"policy": "balanced"}, {}, ("balanced", 0.1)),
        ({"max_overshoot": 0.2}, {}, ("balanced", 0.2)),
        ({"max_overshoot": 0.2}, {"policy": "strict"}, ("strict", 0.0)),
    ],
)
def test_slots_are_strict_unless_a_setting_asks_for_less(
    of_agent: dict[str, Any], of_limit: dict[str, Any], policy: tuple[str, float]
) -> None:
    """Of the limit, or of the agent for all its limits; and a limit on a rate is balanced, as ever."""
    agent = Agent("memory://", **of_agent)
    said, written = agent.concurrency("render", 20, **of_limit), agent.concurrency("export", IN_FLIGHT, **of_limit)
    plan = agent.tier("jobs", "jobs@free", Limit.parse(IN_FLIGHT))

    assert [policy, policy] == [
        (each.control.policy.name, each.control.policy.max_overshoot) for each in (said, written)
    ]
    assert agent.concurrency("other", 20).control.policy == plan.control.policy
    assert "scarce" not in of_agent or of_agent["scarce"] == said.control.policy.scarce
    assert "strict" not in Agent("memory://").limit("login", "100/minute").control.policy.name


def test_a_cold_allowance_of_slots_needs_a_policy_beside_it() -> None:
    """The error says which."""
    with pytest.raises(InvalidSetting, match="in progress are strict by default; add policy='balanced'"):
        Agent("memory://").concurrency("render", 20, cold_allowance=0.5)


def test_a_customer_may_have_a_rate_where_others_have_slots() -> None:
    """Both count apart, and each has the policy of its kind."""
    agent = Agent("memory://")
    slots = agent.tier("jobs", "jobs@slots", Limit.parse(IN_FLIGHT))
    rate = agent.tier("jobs", "jobs@rate", Limit.parse("20/hour"))

    assert ("strict", "balanced") == (slots.control.policy.name, rate.control.policy.name)


@pytest.mark.slow
def test_one_agent_refuses_no_new_key_while_its_hub_answers(redis_server: RedisServer, make_agent: MakeAgent) -> None:
    """In doubt a block asks: each of 50 keys that the hub has never heard of has its slot, once the hub has begun."""
    render = make_agent(redis_server.url).concurrency("render", 20, lease=30.0)
    eventually(lambda: _takes_and_returns(render, "first"), "an answer of a hub that has just begun")

    assert 50 == sum(_takes_and_returns(render, f"new {number}") for number in range(50))


def _takes_and_returns(limiter: SlotLimiter, key: str) -> bool:
    with limiter.slot(key, within=10.0) as slot:
        return bool(slot)
