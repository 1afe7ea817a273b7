"""Goal: every node obeys what is published within one interval, and goes back to its own settings when that expires.

Method: agents at one hub in memory, whose exchanges are made when the test says so, on a clock of the test's; then real
processes at a real Redis.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Any

import pytest

from reconverge import Agent, HubUnavailable, InvalidSetting, LimitConflict
from reconverge.clock import SECOND_NS
from reconverge.hooks import LogHooks, SettingsChanged, SettingsRejected, SilentHooks
from reconverge.hub.report import Answer, Batch
from reconverge.integrations.metrics import Readings
from reconverge.published.settings import LimitOverride
from reconverge.stats import READY
from reconverge.testing import ManualClock
from reconverge_sync.memory import MemoryHub
from tests.support.fixtures.agents import MakeAgent
from tests.support.hooked import hooked
from tests.support.hubs.no_reader import NoReader
from tests.support.programs.process import Process
from tests.support.published import (
    HOUR_S,
    NOON,
    OTHER,
    SECRET,
    known_by,
    login,
    orders,
    post,
    post_at,
    sealed,
    sealed_now,
)
from tests.support.servers import RedisServer
from tests.support.waiting import eventually


class ShopNodes:
    """Two nodes that meet at a hub in memory."""

    def __init__(self, hub: MemoryHub | None = None, **settings: Any) -> None:
        self.clock = ManualClock(start=NOON)
        self.hub = hub or MemoryHub(clock=self.clock)
        usual: dict[str, Any] = {
            "namespace": "shop",
            "settings_secret": SECRET,
            "clock": self.clock,
            "sigterm": False,
        }
        self.agents = [Agent(self.hub, **(usual | settings)) for _ in range(2)]
        for agent in self.agents:
            agent._lifecycle.start = lambda: None  # type: ignore[method-assign]  # the test drives the exchanges
            agent.limit("login", "100/hour")

    def interval(self, seconds: float = 0.1) -> None:
        """So long passes, and both do what is due."""
        self.clock.advance(seconds)
        for agent in self.agents:
            asyncio.run(agent._lifecycle.exchanges.carry_out())

    def publish(self, version: int = 1, **said: Any) -> None:
        post(self.hub, sealed(orders(version, issued=self.now_s, **said)))

    @property
    def now_s(self) -> int:
        """By the clock on the wall."""
        return self.clock.wall_ns() // SECOND_NS

    @property
    def quotas(self) -> list[int]:
        """How much the limit admits on each node."""
        return [agent.limiter("login").limit.quota for agent in self.agents]

    @property
    def switches(self) -> list[str]:
        """How it is switched there."""
        return [agent.limiter("login").switched for agent in self.agents]

    @property
    def intervals_s(self) -> list[float]:
        """How often they exchange."""
        return [agent._kernel.interval_ns / SECOND_NS for agent in self.agents]


@pytest.fixture
def shop() -> ShopNodes:
    """That has exchanged once."""
    shop = ShopNodes()
    shop.interval()
    return shop


def test_every_node_obeys_within_an_interval(shop: ShopNodes) -> None:
    """Quota, switch and pace, though nobody decides about anything."""
    shop.publish(sync_interval=0.5, limits=login("50/hour", "shadow"))
    shop.interval()

    assert [50, 50] == shop.quotas
    assert ["shadow", "shadow"] == shop.switches
    assert [0.5, 0.5] == shop.intervals_s
    assert [1, 1] == [known_by(agent).version for agent in shop.agents]


def test_who_has_nothing_to_say_looks_all_the_same() -> None:
    """In an interval again, where a quiet node without a secret would rest for longer."""
    looking, quiet = ShopNodes(), ShopNodes(settings_secret=None)
    for shop in (looking, quiet):
        shop.interval()
        shop.interval()

    assert [0.1, 0.1] == [agent._lifecycle.exchanges.due_in_s() for agent in looking.agents]
    assert all(agent._lifecycle.exchanges.due_in_s() > 0.5 for agent in quiet.agents)


def test_no_node_goes_above_its_cap() -> None:
    """Without a cap that is what it declared; with one, that, in whichever order things are said."""
    shop = ShopNodes()
    shop.agents[1].limit("login", "100/hour", cap="300/hour")
    shop.publish(limits=login("1000/hour", "off"))
    shop.interval()

    assert [100, 300] == shop.quotas
    assert ["off", "on"] == shop.switches
    assert [("login",), ("login",)] == [known_by(agent).capped for agent in shop.agents]
    shop.agents[0].limit("login", "100/hour", cap="200/hour")
    assert [200, 300] == shop.quotas
    assert ["on", "on"] == shop.switches


def test_a_published_quota_that_a_limit_without_a_cap_does_not_take_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """By each node: what is published, what is in force, and the setting. A cap was declared on purpose."""
    shop = ShopNodes()
    shop.agents[1].limit("login", "100/hour", cap="300/hour")
    shop.publish(limits=login("50/hour"))
    shop.interval()
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    for version in (2, 3):
        shop.publish(version, limits=login("1000/hour"))
        shop.interval()

    (told,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert [] == warnings
    assert "'1000/hour' is published for the limit 'login', and 100/3600s (sliding-window) is in force" in told
    assert "declare the limit with cap='1000/hour'" in told


def test_what_expires_is_taken_back(shop: ShopNodes) -> None:
    """Each node has its own settings again, those that it was given meanwhile."""
    shop.publish(sync_interval=0.5, switch="off", limits=login("50/hour"))
    shop.interval()
    assert ["off", "off"] == shop.switches
    shop.agents[1].change_pace(0.2)
    shop.agents[1].limiter("login").switch("shadow")
    assert [0.5, 0.5] == shop.intervals_s
    shop.interval(HOUR_S)

    assert [100, 100] == shop.quotas
    assert ["on", "shadow"] == shop.switches
    assert [0.1, 0.2] == shop.intervals_s
    assert [0, 0] == [known_by(agent).version for agent in shop.agents]


def test_what_is_not_said_any_more_is_as_the_node_says(shop: ShopNodes) -> None:
    """Settings replace those before; they do not add to them."""
    shop.publish(1, sync_interval=0.5, switch="shadow", limits=login("50/hour"))
    shop.interval()
    shop.publish(2)
    shop.interval()

    assert [100, 100] == shop.quotas
    assert ["on", "on"] == shop.switches
    assert [0.1, 0.1] == shop.intervals_s


def test_what_the_hub_has_lost_one_of_the_nodes_posts_again() -> None:
    """So whoever starts afterwards obeys, too; the others see that it is done."""
    clock = ManualClock(start=NOON)
    hub = MemoryHub(clock=clock)
    shop = ShopNodes(hub, clock=clock)
    shop.clock = clock
    shop.publish(limits=login("50/hour"))
    shop.interval()
    hub.lose_data()
    for _ in range(120):
        shop.interval()
    late = ShopNodes(hub, clock=clock)
    late.interval(0.0)

    assert [50, 50] == late.quotas
    assert 1 == sum(known_by(agent).restored for agent in shop.agents)


def test_a_limit_that_is_declared_later_obeys(shop: ShopNodes) -> None:
    """From its first decision on; and can be declared again as it was, and not otherwise."""
    shop.publish(limits=login("50/hour"))
    shop.interval()
    late = Agent(shop.hub, namespace="shop", settings_secret=SECRET, clock=shop.clock, sigterm=False)
    late._lifecycle.start = lambda: None  # type: ignore[method-assign]
    asyncio.run(late._lifecycle.exchanges.carry_out())
    limiter = late.limit("login", "100/hour")

    assert 50 == limiter.limit.quota
    assert limiter is late.limit("login", "100/hour")
    with pytest.raises(LimitConflict):
        late.limit("login", "60/hour")


def test_what_cannot_be_obeyed_is_told_and_the_rest_is_obeyed(
    shop: ShopNodes, caplog: pytest.LogCaptureFixture
) -> None:
    """A window that this node does not have, and a pace for which its leases are too short."""
    for agent in shop.agents:
        agent.limit("search", "5/minute warmup 5s")
    said = login("50/minute") | {"search": login(switch="off")["login"]}
    shop.publish(sync_interval=3600, limits=said)
    shop.interval()

    assert [100, 100] == shop.quotas
    assert [0.1, 0.1] == shop.intervals_s
    assert ["off", "off"] == [agent.limiter("search").switched for agent in shop.agents]
    (unfit, _) = (known_by(agent).unfit for agent in shop.agents)
    assert ["login", "sync_interval"] == sorted(unfit)
    assert "has another window than" in unfit["login"]
    shop.interval()
    follows = "does not follow what is published for the limit 'login': has another window than"
    assert len(shop.agents) == caplog.text.count(follows), "once on each node"


def test_a_limit_may_have_an_interval_of_its_own(shop: ShopNodes) -> None:
    """The published interval counts, then the node's, which may be none; one too long for its leases is reported."""

    def intervals_s() -> list[float]:
        return [agent.limiter("login").control.table.interval_ns / SECOND_NS for agent in shop.agents]

    shop.agents[0].change_pace(0.3, limit="login")
    shop.publish(1, sync_interval=0.5, limits=login(sync_interval=2.0))
    shop.interval()
    assert ([2.0, 2.0], [0.5, 0.5]) == (intervals_s(), shop.intervals_s)
    shop.agents[0].change_pace(0.4, limit="login")
    assert [2.0, 2.0] == intervals_s()
    shop.publish(2, sync_interval=0.5, limits=login(sync_interval=3600))
    shop.interval()
    assert [0.4, 0.5] == intervals_s()
    assert "needs a lease of at least" in known_by(shop.agents[1]).unfit["login"]
    shop.publish(3)
    shop.interval()

    assert ([0.4, 0.1], [0.1, 0.1]) == (intervals_s(), shop.intervals_s)


def test_too_long_an_interval_can_be_taken_back_soon(shop: ShopNodes) -> None:
    """Whoever exchanges seldom still reads as often as by its own settings."""
    shop.publish(1, sync_interval=4.0)
    shop.interval()
    assert [4.0, 4.0] == shop.intervals_s
    shop.interval()
    shop.publish(2)
    shop.interval()

    assert [0.1, 0.1] == shop.intervals_s


def test_a_child_goes_on_as_its_parent(shop: ShopNodes) -> None:
    """The settings in force are in force there, and older versions are old."""
    shop.publish(2, sync_interval=0.5, limits=login("50/hour"))
    shop.interval()
    for agent in shop.agents:
        agent.start_over_after_fork()
    shop.publish(1)
    shop.interval()

    assert [50, 50] == shop.quotas
    assert [0.5, 0.5] == shop.intervals_s
    assert {"old": 1} == known_by(shop.agents[0]).rejected


class Mute(MemoryHub):
    """A hub at which nothing can be read, in one way or another."""

    problem: Exception = HubUnavailable("permission", "no")
    reads = 0

    async def read(self, *, bytes_max: int) -> bytes | None:
        """Raise it."""
        self.reads += 1
        raise self.problem


@pytest.mark.parametrize("problem", [HubUnavailable("permission", "no"), ValueError("a bug"), TimeoutError()], ids=repr)
def test_who_cannot_read_exchanges_all_the_same(problem: Exception, caplog: pytest.LogCaptureFixture) -> None:
    """It is counted and logged, and is no failure of exchanges."""
    hub = Mute()
    hub.problem = problem
    shop = ShopNodes(hub)
    for _ in range(30):
        shop.agents[0].limiter("login").allow("ada")
        shop.interval()
    shop.interval(1.0)

    stats = shop.agents[0].stats()
    assert {} == stats.exchanges[0].failures
    assert (READY, 0) == (shop.agents[0].health().state, stats.bugs)
    assert 30 == hub.sums()["login"].net
    assert sum(known_by(shop.agents[0]).failures.values()) > 3
    assert sum("cannot be read" in record.getMessage() for record in caplog.records) == len(shop.agents)


class Gone(MemoryHub):
    """A hub that does not answer, and counts who asks what is posted."""

    reads = 0
    away = False

    async def exchange(self, batch: Batch) -> Answer:
        """Exchanges as in memory, unless the hub is away."""
        if self.away:
            raise HubUnavailable("refused", "nobody there")
        return await super().exchange(batch)

    async def read(self, *, bytes_max: int) -> bytes | None:
        """Likewise."""
        self.reads += 1
        return await super().read(bytes_max=bytes_max)


def admitted_in_calm_times(max_overshoot: float | None, asked_before: int) -> int:
    """By two nodes of an `available` limit of 100 that all ask suddenly, when that has been published."""
    shop = ShopNodes(policy="available")
    limiters = [agent.limiter("login") for agent in shop.agents]
    for _ in range(3):
        for limiter in limiters:
            limiter.allow("ada")
        shop.interval(120.0)
    admitted = 6 + sum(limiter.allow("ada") for limiter in limiters for _ in range(asked_before))
    for limiter in limiters:
        limiter.control.apply_override(LimitOverride(max_overshoot=max_overshoot))
    return admitted + sum(limiter.allow("ada") for limiter in limiters for _ in range(150))


@pytest.mark.parametrize("asked_before", [0, 3, 30])
def test_a_limit_that_is_told_to_be_strict_is_so_at_once(asked_before: int) -> None:
    """Nodes that were available, and would have gone far past the quota, stay within their lines."""
    assert 100 < admitted_in_calm_times(None, asked_before)
    assert 100 >= admitted_in_calm_times(0, asked_before)


def test_a_node_that_is_past_its_line_stops_there() -> None:
    """The room that it had already worked out is void."""
    shop = ShopNodes(policy="available")
    for _ in range(3):
        for agent in shop.agents:
            agent.limiter("login").allow("ada")
        shop.interval(120.0)
    limiter = shop.agents[0].limiter("login")
    assert all(limiter.allow("ada") for _ in range(70))
    limiter.control.apply_override(LimitOverride(max_overshoot=0))

    assert not limiter.allow("ada")


@pytest.mark.parametrize(("published", "overdraft"), [(0.05, 2), (0, 0)])
def test_of_an_overdraft_only_what_is_still_allowed_is_kept(published: float, overdraft: int) -> None:
    """Without waiting for another exchange: each of two nodes has its half of that."""
    shop = ShopNodes(
        max_overshoot=0.5, lease_ttl=7200.0
    )  # beyond the window, or what a crash may cost bounds it further
    for agent in shop.agents:
        agent.limiter("login").allow("ada")
    shop.interval()
    shop.interval()
    for agent in shop.agents:
        agent.limiter("login").control.apply_override(LimitOverride(max_overshoot=published))
    cells = [cell for agent in shop.agents for cell in agent.limiter("login").control.table.all_cells()]

    assert [overdraft, overdraft] == [cell.overdraft for cell in cells]


def test_nothing_is_asked_of_a_hub_that_does_not_answer() -> None:
    """An outage is found out about by exchanges alone; and what has expired is taken back all the same."""
    clock = ManualClock(start=NOON)
    hub = Gone(clock=clock)
    shop = ShopNodes(hub, clock=clock)
    shop.clock = clock
    shop.publish(limits=login("50/hour"))
    shop.interval()
    hub.away = True
    shop.interval(1.5)
    before = hub.reads
    for _ in range(20):
        shop.interval()
    assert ([50, 50], before) == (shop.quotas, hub.reads)
    shop.interval(HOUR_S)

    assert ([100, 100], before) == (shop.quotas, hub.reads)


class SettingsDiary(SilentHooks):
    """Writes down what it is told of settings."""

    def __init__(self) -> None:
        self.events: list[object] = []

    def settings_changed(self, event: SettingsChanged, /) -> None:
        self.events.append(event)

    def settings_rejected(self, event: SettingsRejected, /) -> None:
        self.events.append(event)


def test_hooks_are_told_what_is_in_force_and_what_was_rejected(
    shop: ShopNodes, caplog: pytest.LogCaptureFixture
) -> None:
    """Once each, since the last look; also that the node's own settings are in force again."""
    agent, diary = shop.agents[0], SettingsDiary()
    log = LogHooks(logging.getLogger("of the test"), clock=shop.clock)
    caplog.set_level(logging.INFO, "of the test")
    with hooked(agent, diary, log):
        shop.publish(4, sync_interval=3600, limits=login("900/hour"))
        shop.interval()
        agent.look()
        shop.publish(3)
        shop.interval()
        agent.look()
        agent.look()
        shop.interval(HOUR_S)
        agent.look()

    assert [
        SettingsChanged(4, 0, ("login",), ("sync_interval",)),
        SettingsRejected("old", 1),
        SettingsChanged(0, 4, (), ()),
    ] == diary.events
    lines = [record.getMessage() for record in caplog.records if record.name == "of the test"]
    assert [
        "reconverge: settings in force: version 4; published settings not followed: login, sync_interval",
        "reconverge: published settings rejected as old; number: 1",
        "reconverge: settings in force: this node's own; published settings not followed: none",
    ] == lines


def test_metrics_tell_what_is_in_force(shop: ShopNodes) -> None:
    """The version, and what was rejected by reason; of an agent that reads nothing, zeroes."""
    shop.publish(4)
    shop.interval()
    shop.publish(3)
    shop.interval()
    told = Readings().of_agent(shop.agents[0])
    unreported = Readings().of_agent(Agent("memory://"))

    assert [4] == [reading.value for reading in told["reconverge_settings_version"]]
    assert {("old",): 1} == {
        each.labels: each.value for each in told["reconverge_settings_rejected_total"] if each.value
    }
    assert {0} == {each.value for name in unreported if "settings" in name for each in unreported[name]}


class Stuck(MemoryHub):
    """A hub of three shards, one of which does not answer until it is released."""

    released = False

    async def exchange(self, batch: Batch) -> Answer:
        """Exchanges as in memory, but for the last shard."""
        while batch.shard == 2 and not self.released:  # noqa: ASYNC110  # it is released from another thread
            await asyncio.sleep(0.005)
        return await super().exchange(batch)


def test_a_shard_that_hangs_holds_up_no_settings(make_agent: MakeAgent) -> None:
    """They are read while the others exchange."""
    hub = Stuck(shards=3)
    agent = make_agent(hub, namespace="shop", settings_secret=SECRET, exchange_timeout=60.0)
    limiter = agent.limit("login", "100/day")

    def obeys(quota: int) -> bool:
        return limiter.limit.quota == quota

    agent.start()
    for version in (1, 2, 3):
        post(hub, sealed_now(version, limits=login(f"{version}/day")))
        eventually(partial(obeys, version), "the next settings")
    hub.released = True


def test_without_a_secret_nothing_is_read() -> None:
    """Nor is anything told of it."""
    hub = Gone()
    shop = ShopNodes(hub, settings_secret=None)
    shop.publish(limits=login("50/hour"))
    shop.interval()

    assert ([100, 100], 0) == (shop.quotas, hub.reads)
    assert None is shop.agents[0].stats().orders


def test_the_secret_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several of them, too, while they are being changed."""
    monkeypatch.setenv("RECONVERGE_SETTINGS_SECRET", f"{OTHER} {SECRET}")
    shop = ShopNodes(settings_secret=None)
    shop.publish(limits=login("50/hour"))
    shop.interval()

    assert [50, 50] == shop.quotas


def test_an_agent_without_a_hub_has_nothing_to_read() -> None:
    """A secret does it no harm, if it is one."""
    assert None is Agent("memory://", settings_secret=SECRET).stats().orders
    with pytest.raises(InvalidSetting, match="settings_secret"):
        Agent("memory://", settings_secret="short")  # noqa: S106  # which is why it is refused


def test_a_hub_that_cannot_publish_is_refused_with_a_secret() -> None:
    """Whoever waits for settings there would wait for ever; without a secret it is a hub like any."""
    with pytest.raises(InvalidSetting, match="stores no published settings") as found:
        Agent(NoReader(), settings_secret=SECRET, sigterm=False)
    assert SECRET not in str(found.value)

    assert None is Agent(NoReader(), sigterm=False).stats().orders


def test_an_agent_does_not_show_its_secret(shop: ShopNodes) -> None:
    """Neither its repr nor its figures."""
    assert SECRET not in f"{shop.agents[0]!r} {shop.agents[0].stats()!r} {shop.agents[0]._reader!r}"


@pytest.mark.slow
def test_processes_obey_through_a_redis(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that have started, and one that starts afterwards; nobody obeys a forgery, and each cap is kept."""
    post_at(redis_server.url, sealed_now(1, limits=login("90/day")))
    monkeypatch.setenv("RECONVERGE_SETTINGS_SECRET", SECRET)
    with (
        Process("obeys", redis_server.url) as plain,
        Process("obeys", redis_server.url, "150/day") as capped,
    ):
        assert ["90 on", "90 on"] == [plain.says(), capped.says()]
        post_at(redis_server.url, sealed_now(7, secret=OTHER, limits=login("1/day")))
        assert ["forged", "forged"] == [plain.says(), capped.says()]
        post_at(redis_server.url, sealed_now(2, limits=login("1000/day", "shadow")))
        assert ["100 shadow", "150 on"] == [plain.says(), capped.says()]
        with Process("obeys", redis_server.url, "120/day") as late:
            assert "120 on" == late.says()


@pytest.mark.slow
def test_nodes_keep_to_what_is_published_through_a_redis_that_comes_back_empty(
    own_redis: RedisServer, make_agent: MakeAgent
) -> None:
    """Valid settings stay in force, and the next publication is obeyed."""
    agent = make_agent(own_redis.url, namespace="shop", settings_secret=SECRET)
    limiter = agent.limit("login", "100/day")
    agent.start()
    post_at(own_redis.url, sealed_now(1, limits=login("50/day")))
    eventually(lambda: limiter.limit.quota == 50, "the first settings")
    own_redis.kill()
    eventually(lambda: agent.stats().exchanges[0].failures_in_a_row > 1, "an outage")
    own_redis.start()
    eventually(lambda: agent.stats().exchanges[0].failures_in_a_row == 0, "the end of it")
    assert 50 == limiter.limit.quota
    post_at(own_redis.url, sealed_now(2, limits=login("60/day")))
    eventually(lambda: limiter.limit.quota == 60, "the next settings")
