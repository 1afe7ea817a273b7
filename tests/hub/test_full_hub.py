"""Goal: a hub that can take no more keys serves those that it has, and takes others again once there is room.

Method: a real Redis that has reached its `maxmemory`, and hubs in memory with a bound on their cells.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from reconverge import Agent
from reconverge.clock import ManualClock
from reconverge.errors import HubUnavailable
from reconverge.hub import Hub
from reconverge.hub.registry import HubSettings
from reconverge.hub.report import NOT_TAKEN, CellAnswer
from reconverge.stats import DEGRADED
from reconverge.testing.claims.scenes.scene import Voice, limit
from reconverge_sync.memory import MemoryHub
from reconverge_sync.redis.hub import RedisHub
from tests.support.servers import RedisServer
from tests.support.waiting import eventually

SHORT = limit(name="short", algorithm="sliding-window", window_us=1_000_000)
START_S = 1_750_000_000.0
KNOWN, NEW = "a known customer", "a made-up key"


@contextmanager
def full(server: RedisServer) -> Iterator[None]:
    """The server has reached its `maxmemory`, and evicts nothing."""
    server.command("CONFIG", "SET", "maxmemory", "1")
    yield
    server.command("CONFIG", "SET", "maxmemory", "0")


def _ada(hub: Hub, clock: ManualClock, name: str = "ada.0") -> Voice:
    return Voice(hub, lambda: clock.wall_ns() // 1000, node=name, account=name, shard=0, lease_us=30_000_000)


async def _answers(voice: Voice, *keys: str) -> tuple[CellAnswer, ...]:
    answer = await voice.exchanges(voice.batch(*(voice.cell(key, of=SHORT, need=5, current=3) for key in keys)))
    return tuple(answer.cells)


async def test_a_full_redis_serves_the_keys_that_it_has(own_redis: RedisServer) -> None:
    """In one batch the known key gets its allowance, also on a node that is new, and the new key is not taken."""
    clock = ManualClock(START_S)
    hub = RedisHub(own_redis.url, HubSettings("shop", 5.0), clock=clock, certainly_new=lambda: True)
    ada, bob = _ada(hub, clock), _ada(hub, clock, "bob.0")
    await _answers(ada, KNOWN)
    with full(own_redis):
        during = await _answers(ada, NEW, KNOWN)
        at_another = await _answers(bob, KNOWN, NEW)
    after = await _answers(ada, NEW, KNOWN)
    await hub.close()

    assert [NOT_TAKEN, 1] == [cell.nodes for cell in during]
    assert [2, NOT_TAKEN] == [cell.nodes for cell in at_another]
    assert during[1].allowance >= 8
    assert at_another[0].allowance >= 5
    assert (0, 0, 0, 0) == (during[0].allowance, during[0].base, during[0].overdraft, during[0].free)
    assert [1, 2] == [cell.nodes for cell in after]


async def test_a_full_redis_is_no_place_to_begin(own_redis: RedisServer) -> None:
    """A namespace of which it has nothing yet is refused, with the reason."""
    clock = ManualClock(START_S)
    hub = RedisHub(own_redis.url, HubSettings("shop", 5.0), clock=clock)
    with full(own_redis), pytest.raises(HubUnavailable) as refused:
        await _answers(_ada(hub, clock), NEW)
    await hub.close()

    assert "out-of-memory" == refused.value.kind


async def test_a_node_lapses_at_a_full_redis_as_at_any_other(own_redis: RedisServer) -> None:
    """It is told so, and goes on under its new name."""
    clock = ManualClock(START_S)
    hub = RedisHub(own_redis.url, HubSettings("shop", 5.0), clock=clock, certainly_new=lambda: True)
    ada = _ada(hub, clock)
    await _answers(ada, KNOWN)
    clock.advance_ns(31 * 10**9)
    with full(own_redis):
        late = await ada.exchanges(ada.batch(ada.cell(KNOWN, of=SHORT)))
        (again,) = await _answers(_ada(hub, clock, "ada.1"), KNOWN)
    await hub.close()

    assert ("LAPSED", 1) == (late.status.name, again.nodes)


async def test_a_hub_in_memory_keeps_no_more_cells_than_it_may() -> None:
    """The cells are bounded, those that are there are served, and one that nobody needs any more makes room."""
    clock = ManualClock(START_S)
    hub = MemoryHub(clock=clock, max_cells=2)
    ada = _ada(hub, clock)
    before = [(await _answers(ada, key))[0].nodes for key in ("one", "two", "three")]
    clock.advance_ns(10 * 10**9)
    ada.allowances.clear()
    await ada.exchanges(ada.batch(ada.cell("one", of=SHORT)))
    after = [(await _answers(ada, key))[0].nodes for key in ("three", "two", "four")]

    assert ([1, 1, NOT_TAKEN], [1, 1, NOT_TAKEN]) == (before, after)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["balanced", "strict"])
def test_customers_of_other_limits_do_not_notice_that_the_hub_is_full(own_redis: RedisServer, policy: str) -> None:
    """A known customer is admitted as before; a new key goes by the cold rule; health tells of it."""
    with Agent(own_redis.url, namespace="shop", sync_interval=0.05) as agent:
        orders = agent.limit("orders", "1000/minute", policy=policy)
        by_address = agent.limit("by-address", "10/second", policy=policy)
        eventually(lambda: orders.allow("customer") and agent.stats().exchanges[0].exchanges > 3, "it is known")
        with full(own_redis):
            made_up = [by_address.allow("made up") for _ in range(11)]
            eventually(lambda: agent.stats().exchanges[0].not_taken > 0, "the hub has refused a key")
            admitted = sum(orders.allow("customer") for _ in range(20))
            health = agent.health()
        eventually(lambda: by_address.allow("made up"), "there is room for the key")
        failures = agent.stats().exchanges[0].failures

    assert 20 == admitted
    assert {} == failures
    assert [policy == "balanced"] * 10 + [False] == made_up
    assert DEGRADED == health.state
    assert "hub_full" in health.grounds[0]
