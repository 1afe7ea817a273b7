"""Goal: a hub answers the same in a thread that blocks, as an agent's does, and in an application's event loop.

Method: each question that can be asked of a hub, in one order, at two hubs with the same time on a real Redis.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any, Final

import pytest

from reconverge import Agent
from reconverge.clock import ManualClock
from reconverge.hub import port
from reconverge.hub.checking.probe import TRIAL, trial_batch
from reconverge.hub.port import Hub
from reconverge.hub.reading import KeyQuestion
from reconverge.hub.registry import HubSettings
from reconverge.hub.report import Loan
from reconverge.hub.usage import (
    AddressReport,
    Counts,
    NodeLoad,
    Period,
    Retention,
    UsageBatch,
    UsageEvent,
    UsageKey,
    UsageRow,
    page_of,
)
from reconverge.hub.usage import field_of as usage_field
from reconverge.runtime.event_loop import ThreadEventLoop
from reconverge_sync.redis.blocking import BlockingServer
from reconverge_sync.redis.hub import OneServer, RedisHub
from reconverge_sync.redis.usage import RedisUsage
from tests.support.agents import net_at
from tests.support.servers import RedisServer
from tests.support.waiting import eventually

NOON_S: Final = 1_800_000_000
HOUR: Final = Period("hour", 500_000)
KEY: Final = UsageKey("ada", "login", "/")
PAGE: Final = page_of(usage_field(KEY))
ROW: Final = UsageRow(HOUR, KEY, Counts(5, 3, 1))
BATCH: Final = UsageBatch("account", 0, 1, 0, [ROW], Retention(), load=NodeLoad("node", 1.5, 2.5, 0))
EVENT: Final = UsageEvent(HOUR, KEY, 1, Counts(5, 3, 1))
(LIMIT,) = TRIAL.limits
ASKED: Final = KeyQuestion(LIMIT, "doctor")
TWO: Final = "1" * 64, "2" * 64

Question = Callable[[RedisHub], Awaitable[object]]


async def _findings(hub: RedisHub) -> list[object]:
    """Returns what a diagnosis has checked, and with which result; its texts contain times."""
    return [(each.check, each.level) for each in (await hub.diagnose()).findings]


QUESTIONS: Final[dict[str, Question]] = {
    "exchange": lambda hub: hub.exchange(trial_batch("ada", 1, hub_us=NOON_S * 1_000_000, leaving=True)),
    "totals": lambda hub: hub.totals(),
    "post": lambda hub: hub.post(b"settings", keep_s=60.0),
    "read": lambda hub: hub.read(bytes_max=100),
    "swap_index": lambda hub: hub.swap_index(b"index", over=None, bytes_max=100, keep_s=60.0),
    "read_index": lambda hub: hub.read_index(bytes_max=100),
    "put_page": lambda hub: hub.put_page(TWO[0], b"page", keep_s=60.0),
    "get_page": lambda hub: hub.get_page(TWO[0], bytes_max=100),
    "keep_pages": lambda hub: hub.keep_pages(TWO, keep_s=60.0),
    "wishes": lambda hub: hub.wishes(0),
    "lend": lambda hub: hub.lend(0, "lender", 1, [Loan(f"c1:doctor:{LIMIT.algorithm}:1000000:doctor", 3, 0)]),
    "read_keys": lambda hub: hub.read_keys(0, [ASKED]),
    "data": lambda hub: hub.data(0),
    "adopt": lambda hub: hub.adopt(0, "another"),
    "order_erasure": lambda hub: hub.order_erasure(["mark"]),
    "erasures": lambda hub: hub.erasures(0),
    "drop_keys": lambda hub: hub.drop_keys(0, [ASKED]),
    "erase": lambda hub: hub.erase(0, "grace", ["grace"]),
    "evicts": lambda hub: hub.evicts(),
    "mark_keys": lambda hub: hub.mark_keys("mark", keep_s=60.0),
    "watch": lambda hub: hub.watch(keep_s=60.0),
    "watched_s": lambda hub: hub.watched_s(),
    "leave_snapshot": lambda hub: hub.leave_snapshot("a1", b"snapshot", keep_s=60.0),
    "snapshots": lambda hub: hub.snapshots(),
    "usage.record": lambda hub: hub.usage.record(BATCH),
    "usage.totals": lambda hub: hub.usage.totals(HOUR, 0, PAGE),
    "usage.loads": lambda hub: hub.usage.loads(),
    "usage.lead_export": lambda hub: hub.usage.lead_export("hour", "exporter", 60.0),
    "usage.marks": lambda hub: hub.usage.marks("hour", 0),
    "usage.close_period": lambda hub: hub.usage.close_period(HOUR, 0),
    "usage.issue": lambda hub: hub.usage.issue(HOUR, 0, PAGE),
    "usage.confirm": lambda hub: hub.usage.confirm([EVENT], 0, PAGE),
    "usage.finish": lambda hub: hub.usage.finish(HOUR, 0, None),
    "usage.address_secret": lambda hub: hub.usage.address_secret(b"secret"),
    "usage.note_addresses": lambda hub: hub.usage.note_addresses(
        AddressReport(HOUR.number, 0, b"secret", {"ada": bytes((7, 2))})
    ),
    "usage.address_sketches": lambda hub: hub.usage.address_sketches(HOUR.number, 0, b"secret"),
    "usage.retract": lambda hub: hub.usage.retract("account", 0, [(HOUR, KEY)]),
    "diagnose": _findings,
}
"""Each question by the name of the method that answers it, in the order in which they are asked."""
NO_QUESTIONS: Final = {"close", "hints", "shards", "usage", "ready_to_block", "exchange_blocking", "usage.shards"}
"""Methods and properties that ask no server, or have tests of their own."""


def hub_at(url: str, namespace: str) -> RedisHub:
    names = count(1)
    return RedisHub(url, HubSettings(namespace, 5.0), clock=ManualClock(NOON_S), new_name=lambda: f"{next(names)}")


def answers(hub: RedisHub, loop: asyncio.AbstractEventLoop, kind: type[object]) -> dict[str, Any]:
    """Returns the answers to all questions; an exception is an answer, too."""

    async def ask() -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, question in QUESTIONS.items():
            try:
                found[name] = await question(hub)
            except Exception as error:  # noqa: BLE001  # it is compared, and shown
                found[name] = repr(error)
        assert isinstance(hub._per_loop.thing, kind)
        await hub.close()
        return found

    try:
        return loop.run_until_complete(ask())
    finally:
        loop.close()


def test_a_thread_that_blocks_gets_the_answers_of_an_event_loop(redis_server: RedisServer) -> None:
    """To each question; and none of them is an error."""
    blocked = answers(hub_at(redis_server.url, "both-1"), ThreadEventLoop(), BlockingServer)
    awaited = answers(hub_at(redis_server.url, "both-2"), asyncio.new_event_loop(), OneServer)

    assert awaited == blocked
    assert {} == {name: answer for name, answer in awaited.items() if isinstance(answer, str) and "Error" in answer}


def test_each_method_of_a_hub_on_redis_is_among_the_questions() -> None:
    """A method of any protocol of hubs that has no question here is not known to work both ways."""
    protocols = [each for each in vars(port).values() if getattr(each, "_is_protocol", False)]
    methods = {name for each in protocols for name in vars(each) if not name.startswith("_")}
    of_hub = {name for name in methods if hasattr(RedisHub, name)} | {"diagnose"}
    of_usage = {f"usage.{name}" for name in methods if hasattr(RedisUsage, name)}

    assert of_hub | of_usage == QUESTIONS.keys() | NO_QUESTIONS


@pytest.mark.parametrize("name", ["totals", "diagnose"])
def test_an_agent_asks_its_hub(redis_server: RedisServer, name: str) -> None:
    """As a console and an application do: in the thread of the agent, which has connected by then."""
    redis_server.command("FLUSHALL")

    async def ask(hub: Hub) -> Any:
        return await getattr(hub, name)()

    with Agent(redis_server.url, namespace="both", sync_interval=0.02) as agent:
        agent.limit("login", "5/hour").hit("ada")
        eventually(lambda: net_at(redis_server.url, namespace="both") == 1, "the report")

        assert asyncio.run(agent.ask_hub(ask))
