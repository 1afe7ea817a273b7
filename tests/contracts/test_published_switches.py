"""Goal: what is published for the fleet means a limit of contracts by its name, and no more than a switch of it.

Method: settings in force on an agent, whose contracts decide.
"""

from __future__ import annotations

from typing import Any

import pytest

from reconverge import Agent
from reconverge.contracts.contracts import Contracts
from reconverge.published.settings import FleetSettings, LimitOverride
from reconverge_sync.memory import MemoryHub
from tests.support.published import SECRET

PLANS: dict[str, Any] = {
    "plans": {
        "free": {"limits": {"api": "2/hour", "user": {"limit": "1/hour", "by": ["customer", "user"]}}},
        "pro": {"limits": {"api": "3/hour"}},
    },
    "unknown": "free",
    "customers": {"ada": "pro"},
}


def obeying(agent: Agent, **limits: LimitOverride) -> None:
    agent._apply(
        FleetSettings("shop", 1, 0, 1000, limits={name.replace("_", "/"): each for name, each in limits.items()})
    )


def admitted(contracts: Contracts, customer: str, times: int = 5) -> int:
    """How many of so many requests are admitted."""
    return sum(contracts.hit(customer, user="u").allowed for _ in range(times))


@pytest.fixture
def agent() -> Agent:
    """One that obeys settings."""
    return Agent("memory://", namespace="shop")


def test_a_published_switch_means_all_plans_of_a_limit(agent: Agent) -> None:
    """Also those that are met only after it; and the other limit of the plan holds."""
    contracts = Contracts(agent, PLANS)
    first = admitted(contracts, "ada")
    obeying(agent, api=LimitOverride(switch="off"))
    contracts.replace({**PLANS, "plans": {**PLANS["plans"], "team": {"limits": {"api": "1/hour"}}}, "unknown": "team"})

    assert 3 == first
    assert [5, 5] == [admitted(contracts, customer) for customer in ("ada", "bob")]


@pytest.mark.parametrize("name", ["user", "user_customer.user"])
def test_a_limit_that_counts_by_further_facts_is_switched_by_either_name(agent: Agent, name: str) -> None:
    """That of the contract, and that by which the hub knows it."""
    contracts = Contracts(agent, PLANS)
    obeying(agent, **{name: LimitOverride(switch="off")})

    assert 2 == admitted(contracts, "bob")


def test_a_cap_of_the_node_keeps_a_limit_from_being_switched_off(agent: Agent) -> None:
    """By settings as by contracts."""
    contracts = Contracts(agent, PLANS, caps={"api": "1/hour"})
    obeying(agent, api=LimitOverride(switch="off"))

    assert 1 == admitted(contracts, "ada")


def test_a_switch_taken_back_leaves_the_contract_in_force(agent: Agent) -> None:
    """Requests that were admitted meanwhile were not charged."""
    contracts = Contracts(agent, PLANS)
    obeying(agent, api=LimitOverride(switch="off"))
    before = admitted(contracts, "ada")
    agent._apply(None)

    assert (5, 3) == (before, admitted(contracts, "ada"))


def test_what_else_is_published_of_a_limit_of_contracts_is_told_to_be_unfit() -> None:
    """Its plans say the quotas; a quota in its place would be the same for all of them."""
    agent = Agent(MemoryHub(), namespace="shop", settings_secret=SECRET)
    contracts = Contracts(agent, PLANS)
    obeying(agent, api=LimitOverride(limit="9/hour", switch="on"))
    stats = agent.stats().orders

    assert 3 == admitted(contracts, "ada")
    assert stats is not None
    assert {"api"} == set(stats.unfit)
    assert "change the plans in the contracts" in stats.unfit["api"]
