"""Objects that come and go beside keys: full nodes, bans, slots, quotas between which keys move. See `churn.py`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from reconverge import Agent, Limit, RateLimiter
from reconverge.clock import SECOND_NS, ManualClock
from reconverge.limiter.control import LimitControl
from reconverge.policies import BALANCED, STRICT
from reconverge.simulation.explore.node import START_S, SmallNode
from reconverge_sync.memory import MemoryHub

KEYS_MAX = 40
KINDS = ("fixed-window", "sliding-window", "token-bucket")


def full_nodes() -> Callable[[int], None]:
    """Asks about keys for which a node without a hub has no room, until others have been idle long enough."""
    clock = ManualClock(START_S)
    agent = Agent("memory://", clock=clock, max_keys=KEYS_MAX)
    limiters = [agent.limit(name, Limit(3, 1, algorithm=name)) for name in KINDS]

    def come(number: int) -> None:
        for each in range(KEYS_MAX):
            limiters[each % len(limiters)].allow(f"key {number} {each}", each % 3 + 1)
        clock.advance_ns(SECOND_NS * (number % 4) // 2)

    return come


def full_nodes_with_a_hub() -> Callable[[int], None]:
    """Asks a full node that reports its keys: idle ones leave as others come, those in use with a last report."""
    clock = ManualClock(START_S)
    node, hub = SmallNode(clock, keys_max=KEYS_MAX), MemoryHub(clock=clock)
    limiters = [RateLimiter(LimitControl(node.limit(Limit(3, 1, algorithm=name), BALANCED, name))) for name in KINDS]

    def come(number: int) -> None:
        for each in range(KEYS_MAX):
            limiters[each % len(limiters)].allow(f"key {number} {each}", each % 3 + 1)
            if each == KEYS_MAX // 2 and number % 4 == 0:
                node.sends()  # keys come while the hub's answer about others is under way
        if number % 2 == 0:  # else idle keys leave of which the hub has never heard
            node.exchanges_with(hub, rounds=2)
        clock.advance_ns(SECOND_NS)  # an exchange comes within each lease, or each would make a node at the hub

    return come


def bans() -> Callable[[int], None]:
    """Refuses keys until they are banned; asks about them meanwhile, after the ban, and after a reset."""
    clock = ManualClock(START_S)
    limiter = Agent("memory://", clock=clock).limit("login", "2/second", block_after="3/second", block_for="2 seconds")

    def ban(number: int) -> None:
        key = f"key {number % 20}"
        for _ in range(8):
            limiter.allow(key)
        assert not limiter.hit(key).allowed
        if number % 3 == 0:
            limiter.reset(key)
        clock.advance_ns(SECOND_NS // 4)

    return ban


def slots() -> Callable[[int], None]:
    """Takes slots that are refused, waited for, released, or dropped without a release."""
    clock = ManualClock(START_S)
    limiter = Agent("memory://", clock=clock).concurrency("render", 3, lease=30.0)

    async def wait(key: str) -> None:
        async with limiter.slot(key, timeout=5.0, max_queue=4):
            await asyncio.sleep(0)

    async def all_wait(key: str) -> None:
        await asyncio.gather(*(wait(key) for _ in range(5)))

    def work(number: int) -> None:
        key = f"key {number % 9}"
        taken = [limiter.slot(key) for _ in range(4)]
        assert [True, True, True, False] == [bool(slot.acquire()) for slot in taken]
        taken.pop(0).release()
        taken.pop(0).release()
        del taken
        with limiter.slot(key, 2) as again:
            assert again.decision is not None
        asyncio.run(all_wait(key))
        clock.advance_ns(SECOND_NS * (number % 3))

    return work


def tiers() -> Callable[[int], None]:
    """Moves keys between quotas; a quota without keys is dropped, and made again on demand."""
    clock = ManualClock(START_S)
    node, hub = SmallNode(clock), MemoryHub(clock=clock)
    kernel = node.kernel

    def quota(number: int) -> RateLimiter:
        made = kernel.tier(f"limit@{number}", Limit(number, 60), STRICT, reported_as="limit")
        return RateLimiter(LimitControl(made))

    def move(number: int) -> None:
        lower, higher = quota(5 + number % 7), quota(20 + number % 5)
        for key in (f"key {number % 11}", "ada"):
            lower.allow(key)
            higher.hit(key, 2)
            (lower if number % 2 else higher).allow(key)
        node.exchanges_with(hub, rounds=2)
        kernel.dropped.drop([lower.control.table.name, higher.control.table.name])
        clock.advance_ns(SECOND_NS)

    return move


OF_PARTS: dict[str, Callable[[], Callable[[int], None]]] = {
    "full nodes": full_nodes,
    "full nodes with a hub": full_nodes_with_a_hub,
    "bans": bans,
    "slots": slots,
    "tiers": tiers,
}
