"""Goal: a quota of 0 refuses everything, wherever a limit is written, and what was used stays when it rises again.

Method: every algorithm and every way of asking on a clock that stands still; changes by the program, by settings that
are published, by a file and by a contract.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest

from reconverge import Agent, InvalidKey, InvalidLimit, InvalidSetting, Limit, RateLimiter
from reconverge.contracts.contracts import Contracts
from reconverge.integrations.config import load
from reconverge.limit.limit import ALGORITHMS, SMOOTH_WARMING_UP
from reconverge.published.settings import LimitOverride
from reconverge.testing import ManualClock

ASK: dict[str, Callable[[RateLimiter], bool]] = {
    "allow": lambda limiter: limiter.allow("ada"),
    "allow of nothing": lambda limiter: limiter.allow("ada", 0),
    "hit": lambda limiter: bool(limiter.hit("ada")),
    "allow_many": lambda limiter: limiter.allow_many(["ada"], [1])[0],
    "test": lambda limiter: bool(limiter.test("ada")),
    "reserve": lambda limiter: limiter.reserve("ada", 1).allowed,
    "ask": lambda limiter: bool(asyncio.run(limiter.ask("ada"))),
    "ask_blocking": lambda limiter: bool(limiter.ask_blocking("ada")),
    "wait": lambda limiter: bool(asyncio.run(limiter.wait("ada", timeout=60))),
    "wait_blocking": lambda limiter: bool(limiter.wait_blocking("ada", timeout=60)),
}


def agent_of() -> Agent:
    """An agent without a hub, on a clock that stands still."""
    return Agent("memory://", clock=ManualClock(start=0))


def of_nothing(algorithm: str) -> Limit:
    return Limit(0, 60, algorithm, warmup=5 if algorithm == SMOOTH_WARMING_UP else None)


@pytest.mark.parametrize("ask", ASK.values(), ids=ASK)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_quota_of_0_refuses_each_request(algorithm: str, ask: Callable[[RateLimiter], bool]) -> None:
    """However it is counted, and however it is asked; nothing waits."""
    assert not ask(agent_of().limit("login", of_nothing(algorithm)))


def test_its_refusals_are_certain_without_an_end_and_counted() -> None:
    """They name the quota that is 0, and what remains."""
    agent = agent_of()
    decision = agent.limit("login", "9/second; 0/day").hit("ada")

    assert (0, 0, inf, True, "login#2") == (
        decision.limit,
        decision.remaining,
        decision.retry_after,
        decision.certain,
        decision.binding,
    )
    assert [0, 1] == [agent.stats().limits[name].refused for name in ("login", "login#2")]
    assert 0 == agent.limiters["login"].usages("ada")["login#2"].limit


def test_a_wrong_argument_is_an_error_as_ever() -> None:
    """An empty key is reported, though everything is refused."""
    with pytest.raises(InvalidKey):
        agent_of().limit("login", "0/minute").allow("")


def test_no_slot_is_granted_of_none() -> None:
    """The number of slots rises and falls again."""
    slots = agent_of().concurrency("jobs", 0)

    def granted() -> bool:
        with slots.slot("ada") as slot:
            return bool(slot)

    seen = [granted()]
    for number in (1, 0):
        slots.change(number)
        seen.append(granted())
    assert [False, True, False] == seen


@pytest.mark.parametrize("settings", [{}, {"soft": "50%"}, {"costs": {"export": 2, "*": 1}}, {"max_debt": 3}], ids=str)
def test_what_was_used_stays_while_the_quota_is_0(settings: dict[str, Any]) -> None:
    """A kept `allow` follows a quota that rises."""
    limiter = agent_of().limit("login", "3/minute", **settings)
    kind = "*" if "costs" in settings else None
    assert limiter.allow("ada", 3 if "soft" in settings else 2, kind)

    limiter.change("0/minute", **settings)
    closed = limiter.allow
    assert not closed("ada", 1, kind)
    limiter.change("3/minute", **settings)
    assert [True, False] == [closed("ada", 1, kind) for _ in range(2)]


@pytest.mark.parametrize("ask", ASK.values(), ids=ASK)
@pytest.mark.parametrize("limit", ["9/minute", "9/minute; 99/hour"])
def test_it_closes_the_limit_of_other_agents_of_the_same_memory(limit: str, ask: Callable[[RateLimiter], bool]) -> None:
    """They count by the same tables, so they close and open with them."""
    hub = f"memory://{token_hex(4)}"
    one, other = (Agent(hub).limit("login", limit) for _ in range(2))

    one.change(limit.replace("9/minute", "0/minute"))
    assert not ask(other)
    one.change(limit)
    assert ask(other)


def test_a_switch_comes_before_it() -> None:
    """In shadow it would refuse, and off it is not asked."""
    limiter = agent_of().limit("login", "0/minute")
    limiter.switch("shadow")
    assert limiter.hit("ada").would_refuse
    limiter.switch("off")
    assert limiter.allow("ada")
    limiter.switch("on")
    assert not limiter.allow("ada")


def test_requests_that_wait_are_refused_when_the_quota_falls_to_0() -> None:
    """They would wait for ever."""

    async def waited() -> bool:
        limiter = Agent("memory://").limit("login", "1/hour")
        assert limiter.allow("ada")
        waiting = asyncio.create_task(limiter.wait("ada"))
        await asyncio.sleep(0.01)
        limiter.change("0/hour")
        return bool(await asyncio.wait_for(waiting, 10))

    assert not asyncio.run(waited())


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_published_settings_lower_a_quota_to_0_and_never_raise_it_from_there(algorithm: str) -> None:
    """The node has declared the most that they can allow."""
    agent = agent_of()
    own = agent.limit("login", Limit(2, 60, algorithm, warmup=of_nothing(algorithm).warmup))
    own.control.apply_override(LimitOverride(limit=str(of_nothing(algorithm)).partition(" (")[0]))
    assert not own.allow("ada")
    own.control.apply_override(LimitOverride())
    assert own.allow("ada")

    closed = agent.limit("closed", of_nothing(algorithm))
    closed.control.apply_override(LimitOverride(limit=str(own.limit).partition(" (")[0]))
    assert not closed.allow("ada")


def test_a_file_closes_and_opens_a_limit(tmp_path: Path) -> None:
    """By a reload, with the use of its keys."""
    path = tmp_path / "settings.toml"

    def written(limit: str) -> None:
        path.write_text(f'hub = "memory://"\n[limits]\nlogin = "{limit}"\njobs = "0 in flight"\n', encoding="utf-8")

    written("0/minute")
    settings = load(path)
    login = settings.limiter("login")
    assert isinstance(login, RateLimiter)
    assert not login.allow("ada")
    written("1/minute")
    settings.reload()
    assert [True, False] == [login.allow("ada") for _ in range(2)]


CONTRACTS: dict[str, Any] = {
    "plans": {
        "free": {"limits": {"calls": "3/minute", "daily": "9/day"}},
        "blocked": {"limits": {"calls": "0/minute", "daily": "9/day"}},
    },
    "customers": {"ada": "free", "bob": "blocked", "cyd": {"plan": "free", "limits": {"daily": "0/day"}}},
}


@pytest.mark.parametrize(("customer", "by"), [("bob", "calls"), ("cyd", "daily")])
def test_a_contract_blocks_a_customer(customer: str, by: str) -> None:
    """By its plan or its own limit; its other limits are not charged, and the sentence for people has no time."""
    contracts = Contracts(agent_of(), CONTRACTS)
    answers = [contracts.hit(customer), contracts.ask_blocking(customer), asyncio.run(contracts.ask(customer))]

    assert [(False, by, inf)] * 3 == [(each.allowed, each.refused_by, each.retry_after) for each in answers]
    assert [0, 0] == [usage.total for usage in contracts.usages(customer).values()]
    assert "no requests a " in contracts.explain(customer).sentence
    assert "it cannot go on until its contract changes." in contracts.explain(customer).sentence


def test_a_contract_that_opens_again_has_forgotten_no_use() -> None:
    """The use from before the quota fell to 0 counts when it rises again."""
    contracts = Contracts(agent_of(), CONTRACTS)
    seen = [bool(contracts.hit("ada")) for _ in range(2)]
    for plan in ("blocked", "free"):
        contracts.replace({**CONTRACTS, "customers": {"ada": plan}})
        seen += [bool(contracts.hit("ada")) for _ in range(2)]

    assert [True, True, False, False, True, False] == seen


MISTAKES: dict[str, Callable[[Agent], object]] = {
    "a cap below the limit": lambda agent: agent.limit("login", "5/minute", cap="0/minute"),
    "a ban after no refusal": lambda agent: agent.limit("login", "5/minute", block_after="0/minute", block_for=60),
    "a share of nothing": lambda agent: agent.limit("login", "0/minute", parent=agent.limit("all", "0/minute")),
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_where_0_has_no_meaning_it_is_an_error(mistake: Callable[[Agent], object]) -> None:
    """A cap, a parent or a count of refusals of 0 is refused where it is written."""
    with pytest.raises((InvalidLimit, InvalidSetting)):
        mistake(agent_of())
