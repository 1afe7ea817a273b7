"""Goal: several quotas of one limit are shared by a fleet as single ones are, each of them.

Method: two agents on one Redis, each with a thread and a connection of its own; windows so long that they do not end
within the test. A fork, where it matters what a lock is worth in the child.
"""

from __future__ import annotations

import os

import pytest

from reconverge import Agent, RateLimiter
from tests.support.agents import admitted_of, heard, net_at
from tests.support.fixtures.agents import MakeAgent
from tests.support.servers import RedisServer
from tests.support.waiting import eventually


def all_heard(limiter: RateLimiter) -> bool:
    """Whether the hub has answered about every quota; asking makes the agent ask."""
    return all(usage.staleness < float("inf") for usage in limiter.usages("ada").values())


@pytest.mark.parametrize("limit", ["100/year; 1000/year as more", "1000/year as more; 100/year"])
def test_strict_keeps_the_scarcest_of_all_quotas_exactly(
    limit: str, redis_server: RedisServer, make_agent: MakeAgent
) -> None:
    """On both agents together, whichever quota comes first; and what the last refuses is charged to none."""
    ada, bob = (make_agent(redis_server.url, policy="strict").limit("login", limit) for _ in range(2))
    admitted = 0

    def ask() -> int:
        nonlocal admitted
        admitted += admitted_of(ada, 3) + admitted_of(bob, 7)
        return admitted

    eventually(lambda: ask() >= 100, "the whole quota")
    eventually(lambda: all_heard(ada) and all_heard(bob) and ask(), "answers about all quotas")

    assert 100 == admitted
    assert {True} == {usage.own <= usage.line for usage in ada.usages("ada").values()}


def test_the_hub_counts_every_quota_under_its_own_name(redis_server: RedisServer, make_agent: MakeAgent) -> None:
    """Its lifetime numbers are exact for each, also with settlements and refunds."""
    agent = make_agent(redis_server.url, cold_allowance=1.0)
    login = agent.limit("login", "1000/year; 9000/year; 8000/year as third")
    login.allow("ada", 7)
    login.reserve("ada", 5).settle(30)
    login.refund("ada", 3)
    agent.stop()

    assert [34, 34, 34] == [net_at(redis_server.url, name) for name in ("login", "login#2", "login#third")]


def test_shares_and_what_is_for_all_sum_to_the_parents_quota(redis_server: RedisServer, make_agent: MakeAgent) -> None:
    """In strict, on two agents, whatever is asked where."""
    families = []
    for agent in (make_agent(redis_server.url, policy="strict") for _ in range(2)):
        parent = agent.limit("api", "100/year")
        families.append((agent.limit("search", "30/year", parent=parent), parent))
    admitted = 0

    def ask() -> int:
        nonlocal admitted
        admitted += sum(admitted_of(limiter, 3) for family in families for limiter in family)
        return admitted

    eventually(lambda: ask() >= 100, "the whole quota")
    eventually(lambda: ask() and all(heard(limiter) for family in families for limiter in family), "more answers")

    assert 100 == admitted


def test_a_forked_child_decides_about_several_quotas_although_the_lock_was_taken() -> None:
    """Whoever held it is not there any more; all quotas share a lock again."""
    agent = Agent("memory://")
    login = agent.limit("login", "10/year; 5/year")
    with login.control.table.lock:
        pid = os.fork()
        if pid == 0:
            tables = login.control.tables
            shared = tables[0].lock is tables[1].lock
            os._exit(admitted_of(login, 20) if shared else 99)
    _, status = os.waitpid(pid, 0)

    assert 5 == os.waitstatus_to_exitcode(status)
