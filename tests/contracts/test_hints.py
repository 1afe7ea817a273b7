"""Goal: a change is obeyed at once where the hub hints at it, and within one period where no hint comes.

Method: a reader on a clock of the test's, whose listener hears what the test says; then each hub that hints, and nodes
at a real Redis that says nothing, or forbids to listen.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest
import redis

from reconverge.clock import SECOND_NS, ManualClock, SystemClock
from reconverge.contracts.contracts import Contracts
from reconverge.contracts.following import follow_hub
from reconverge.contracts.store.hints import (
    FLOODED_S,
    FORBIDDEN_S,
    GAP_S,
    HEARD_MAX,
    PERIOD,
    SPREAD,
    HintListener,
    _Listening,
)
from reconverge.contracts.store.index import INDEX
from reconverge.contracts.store.reader import ContractsReader
from reconverge.errors import HubUnavailable
from reconverge.hub import ContractHints, IndexHints
from reconverge.hub.fallback.two_hubs import two_hubs
from reconverge.hub.registry import HubSettings
from reconverge.published.envelope import Secrets, Verifier
from reconverge_sync.cluster.hub import ClusterHub
from reconverge_sync.embedded.hub import EmbeddedHub
from reconverge_sync.memory import MemoryHub
from reconverge_sync.redis.hub import RedisHub
from reconverge_sync.sentinel.hub import SentinelHub
from tests.contracts.operator import publish
from tests.support.fixtures.agents import MakeAgent
from tests.support.kept_contracts import INTERVAL_S, PLANS, book_at, shop
from tests.support.published import NOON, SECRET
from tests.support.redis_cluster import RedisCluster
from tests.support.redis_sentinel import RedisService
from tests.support.servers import RedisServer, free_port
from tests.support.waiting import eventually

SETTINGS = HubSettings("shop", 5.0)
EVENTUALLY_S = 20.0


class QuietHints:
    """Listens, and hears what the test says."""

    def __init__(self) -> None:
        self.closed = 0

    async def changed(self) -> None:
        """Never, by itself."""
        await asyncio.Event().wait()

    async def close(self) -> None:
        self.closed += 1


class HintingNode:
    """A reader that listens, on a clock of the test's; what is heard, the test says."""

    def __init__(self, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(_Listening, "start", lambda _self: None)
        self.clock = clock
        self.hub = MemoryHub(clock=clock)
        self.looks = 0
        self.wakes = 0
        read = self.hub.read_index

        async def counted(*, bytes_max: int) -> bytes | None:
            self.looks += 1
            return await read(bytes_max=bytes_max)

        monkeypatch.setattr(self.hub, "read_index", counted)
        self.listener = HintListener(clock, interval_ns=interval_ns, wake=self._wake)
        self.reader = ContractsReader(
            Verifier(INDEX, "shop", Secrets(SECRET)),
            clock,
            interval_ns=interval_ns,
            apply=lambda version, document: None,
            hints=self.listener,
        )

    def _wake(self) -> None:
        self.wakes += 1

    def go_on(self, seconds: float = 0.0) -> None:
        """So long passes, and the reader does what is due."""
        self.clock.advance(seconds)
        if self.reader.due_ns() <= self.clock.monotonic_ns():
            asyncio.run(self.reader.follow(self.hub, cut_off=False, timeout_s=5.0))

    def intervals(self, count: int) -> int:
        """So many intervals pass; returns how often the hub was looked at."""
        before = self.looks
        for _ in range(count):
            self.go_on(INTERVAL_S)
        return self.looks - before

    @property
    def thread(self) -> _Listening:
        assert self.listener._thread is not None
        return self.listener._thread

    def hears(self, *, first: bool = False) -> None:
        """The hub hints."""
        self.listener.hear(self.thread, first=first)

    def publish(self, customer: str) -> int:
        """A change without a hint. Returns its version."""
        return asyncio.run(book_at(self.hub, self.clock).replace(shop(**{customer: "pro"}), author="root"))


def interval_ns() -> int:
    """A tenth of a second."""
    return round(INTERVAL_S * SECOND_NS)


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> HintingNode:
    """That listens and has read version 1."""
    node = HintingNode(ManualClock(start=NOON), monkeypatch)
    node.publish("ada")
    node.looks = 0  # of the reader's
    node.go_on()
    node.hears(first=True)
    node.go_on(INTERVAL_S)
    return node


def test_a_node_that_is_told_of_changes_looks_once_in_ten_intervals(node: HintingNode) -> None:
    """And it looks at once when it is told that it listens, since it may have missed something until then."""
    assert 2 == node.looks
    assert 3 == node.intervals(3 * PERIOD)


def test_a_hint_has_a_node_look_within_a_tenth_of_an_interval(node: HintingNode) -> None:
    """The change is obeyed then, and not when the node would have looked."""
    version = node.publish("bob")
    wakes = node.wakes
    node.hears()
    node.go_on(SPREAD * INTERVAL_S + GAP_S)

    assert 1 == node.wakes - wakes
    assert version == node.reader.version
    assert (1, 0) == (node.reader.stats().hinted, node.reader.stats().hints_lost)


def test_a_change_whose_hint_is_lost_is_obeyed_within_one_period(
    node: HintingNode, caplog: pytest.LogCaptureFixture
) -> None:
    """That is seen, counted and said once, and the node looks in every interval until it hears a hint again."""
    version = node.publish("bob")
    node.intervals(PERIOD - 1)
    before = node.reader.version
    with caplog.at_level(logging.WARNING, logger="reconverge"):
        node.intervals(1)
    obeyed = node.reader.version
    node.intervals(1)  # it connects anew
    node.hears(first=True)
    without = node.intervals(10)
    node.hears()
    node.intervals(1)
    again = node.intervals(2 * PERIOD)

    assert [version - 1, version] == [before, obeyed]
    assert 1 == node.reader.stats().hints_lost
    assert 1 == sum("no hint came" in each for each in caplog.messages)
    assert without >= 10
    assert again <= 3


def test_a_lost_connection_has_a_node_look_at_once_and_then_in_every_interval(
    node: HintingNode, caplog: pytest.LogCaptureFixture
) -> None:
    """Hints of the meantime are lost; one look makes up for them."""
    version = node.publish("bob")
    with caplog.at_level(logging.INFO, logger="reconverge"):
        for _ in range(3):
            node.listener.miss(node.thread, HubUnavailable("connection", "gone"))
    node.go_on(GAP_S)

    assert version == node.reader.version
    assert 10 == node.intervals(10)
    assert 0 == node.reader.stats().hints_lost
    assert ["INFO"] == [each.levelname for each in caplog.records if "cannot be received" in each.message]


def test_a_flood_of_hints_has_a_node_look_as_often_as_the_gap_lets_it(node: HintingNode) -> None:
    """A client of the broker may say what it likes: 50 looks in a second, and no decision depends on one."""
    before = node.looks
    for _ in range(1000):
        node.hears()
        node.go_on(0.001)

    assert node.looks - before <= 1.0 / GAP_S + 1
    assert 1 == node.reader.version


def test_a_flood_of_hints_is_listened_to_no_further(node: HintingNode, caplog: pytest.LogCaptureFixture) -> None:
    """A second's worth of hints is heard; then nothing is read for a while, and each interval has a look."""
    node.go_on(INTERVAL_S)
    with caplog.at_level(logging.WARNING, logger="reconverge"):
        goes_on = [node.listener.hear(node.thread, first=False) for _ in range(HEARD_MAX + 1)]
    version = node.publish("bob")
    looks = node.intervals(10)

    assert [True] * HEARD_MAX + [False] == goes_on
    assert (1, version) == (node.reader.stats().hint_floods, node.reader.version)
    assert 10 == looks
    said = [record.getMessage() for record in caplog.records if record.module == "hints"]  # not what others say
    assert ["more than 200 hints"] == [each.split("reconverge: ")[1][:19] for each in said]


def test_a_second_has_room_for_as_many_hints_as_the_one_before(node: HintingNode) -> None:
    """The bound is one of a rate: what comes at that rate is heard for ever."""
    heard = []
    for _ in range(3):
        heard += [node.listener.hear(node.thread, first=False) for _ in range(HEARD_MAX)]
        node.go_on(1.0)

    assert all(heard)
    assert 0 == node.listener.floods


def test_a_listener_leaves_a_channel_that_is_flooded() -> None:
    """The hub drops what comes then, and the listener comes back after its pause."""
    pauses: list[float] = []

    class Flood(QuietHints):
        """A hint at each call, to listeners that come back twice."""

        def __init__(self) -> None:
            super().__init__()
            self.said = 0

        async def changed(self) -> None:
            self.said += 1

    class Listening(_Listening):
        """Takes no time to rest, and ends after the second time."""

        async def _rest(self, seconds: float) -> None:
            pauses.append(seconds)
            self._stopping = len(pauses) == 2

    hints = Flood()
    listener = HintListener(ManualClock(start=NOON), interval_ns=interval_ns, wake=lambda: None)
    listening = Listening(listener, hints)
    listener._thread = listening
    asyncio.run(listening._listen())

    assert [FLOODED_S] * 2 == pauses
    assert (2, 2) == (hints.closed, listener.floods)
    assert 2 * (1 + HEARD_MAX + 1) == hints.said


def test_what_an_ended_listener_says_is_not_heard(node: HintingNode) -> None:
    """A thread that was given up may say a word more."""
    former = node.thread
    asyncio.run(node.reader.part(0.0))
    node.listener.hear(former, first=False)
    node.listener.miss(former, HubUnavailable("connection", "gone"))

    assert 0 == node.listener.heard
    assert not node.listener.listening


@pytest.fixture(params=["memory", "redis", "cluster", "sentinel", "embedded", "fallback"])
def make_hub(request: pytest.FixtureRequest) -> Callable[[], Any]:
    """Makes hubs of one namespace that nothing is kept at."""
    if request.param == "memory":
        hub = MemoryHub()
        return lambda: hub
    if request.param == "embedded":
        url = f"embedded://hints-{free_port()}"
        return lambda: EmbeddedHub(url, SETTINGS)
    if request.param == "cluster":
        cluster: RedisCluster = request.getfixturevalue("shared_cluster")
        cluster.flush()
        return lambda: ClusterHub(f"{cluster.url}?shards=8", SETTINGS)
    if request.param == "sentinel":
        service: RedisService = request.getfixturevalue("service")
        return lambda: SentinelHub(service.url, SETTINGS)
    server: RedisServer = request.getfixturevalue("redis_server")
    if request.param == "fallback":
        return lambda: two_hubs(
            RedisHub(server.url, SETTINGS),
            MemoryHub(),
            clock=SystemClock(),
            timeout_s=1.0,
            name="fallback",
            random=Random(1),
        )
    return lambda: RedisHub(server.url, SETTINGS)


@pytest.fixture(scope="module")
def service() -> Iterator[RedisService]:
    """A master with Sentinels."""
    with RedisService() as service:
        yield service


@pytest.mark.slow
async def test_a_hub_says_that_its_index_has_changed(make_hub: Callable[[], Any]) -> None:
    """To each that listens, also what was said between two calls; a page that is put is no change."""
    writer, reader = make_hub(), make_hub()
    await writer.keep_pages(["00" * 32], keep_s=600.0)
    await reader.keep_pages(["00" * 32], keep_s=600.0)
    hints: IndexHints | None = reader.hints()
    assert hints is not None
    await asyncio.wait_for(hints.changed(), EVENTUALLY_S)
    await writer.put_page("00" * 32, b"page", keep_s=600.0)
    heard = [isinstance(make_hub(), ContractHints), await hears(hints, 0.1)]
    over: bytes | None = None
    for payload in (b"one", b"two"):
        assert await writer.swap_index(payload, over=over, bytes_max=1000, keep_s=600.0)
        over = payload
        heard.append(await hears(hints, EVENTUALLY_S))
    await hints.close()
    await asyncio.wait_for(hints.changed(), EVENTUALLY_S)  # another connection
    await hints.close()
    await writer.close()
    if reader is not writer:
        await reader.close()

    assert [True, False, True, True] == heard


async def hears(hints: IndexHints, seconds: float) -> bool:
    """Whether a hint comes in time."""
    waiting = asyncio.ensure_future(hints.changed())
    done, _ = await asyncio.wait([waiting], timeout=seconds)
    if not done:
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    return bool(done)


def change(url: str, customer: str) -> int:
    """Publish, as an operator does; returns the version."""

    async def publishing() -> int:
        hub = RedisHub(url, SETTINGS)
        version = await book_at(hub).set_customer(customer, "pro", author="root")
        await hub.close()
        return version

    return asyncio.run(publishing())


def heard_by(make_agent: MakeAgent, url: str) -> tuple[Contracts, ContractsReader]:
    """Returns contracts that have their first version, looked for once in a minute, and listen for hints."""
    agent = make_agent(url, namespace="shop", sync_interval=60.0)
    contracts = Contracts(agent, PLANS)
    reader = follow_hub(contracts, secret=SECRET)
    agent.start()
    eventually(lambda: 1 == contracts.version, "the first version")
    listener = reader._hints
    assert listener is not None
    eventually(lambda: listener.listening, "that hints are listened for")
    return contracts, reader


def test_a_change_arrives_by_a_hint_long_before_it_is_looked_for(
    redis_server: RedisServer, make_agent: MakeAgent
) -> None:
    """With an interval of a minute, a change and one after the listener's connection was killed; both are obeyed."""
    publish(redis_server.url, shop(ada="free"))
    contracts, reader = heard_by(make_agent, redis_server.url)
    second = change(redis_server.url, "bob")
    eventually(lambda: second == contracts.version, "the second version")
    with redis.Redis.from_url(redis_server.url) as client:
        assert client.client_kill_filter(_type="pubsub") >= 1
    third = change(redis_server.url, "eve")
    eventually(lambda: third == contracts.version, "the third version")

    assert reader.stats().hinted >= 1


def test_a_hub_that_hints_nothing_is_looked_at_within_a_period(
    redis_server: RedisServer, make_agent: MakeAgent
) -> None:
    """The writer has no right to publish: its change is made, and found; then in every interval."""
    publish(redis_server.url, shop(ada="free"))
    with redis.Redis.from_url(redis_server.url) as client:
        client.execute_command("ACL", "SETUSER", "mute", "on", ">word", "~*", "&*", "+@all", "-publish")
    agent = make_agent(redis_server.url, namespace="shop")
    contracts = Contracts(agent, PLANS)
    reader = follow_hub(contracts, secret=SECRET)
    agent.start()
    listener = reader._hints
    assert listener is not None
    eventually(lambda: listener.listening and listener._hinted_ns is None, "that hints are listened for")
    eventually(lambda: 1 == contracts.version, "the first version")
    mute = redis_server.url.replace("redis://", "redis://mute:word@")
    versions = [change(mute, "bob"), change(mute, "eve")]
    eventually(lambda: versions[-1] == contracts.version, "the third version")

    assert [2, 3] == versions
    assert (0, True) == (reader.stats().hinted, reader.stats().hints_lost >= 1)


def test_a_user_that_may_not_subscribe_is_told_once_and_looks_in_every_interval(
    redis_server: RedisServer, make_agent: MakeAgent, caplog: pytest.LogCaptureFixture
) -> None:
    """Everything else goes on."""
    publish(redis_server.url, shop(ada="free"))
    with redis.Redis.from_url(redis_server.url) as client:
        client.execute_command("ACL", "SETUSER", "deaf", "on", ">word", "~*", "resetchannels", "+@all", "-subscribe")
    agent = make_agent(redis_server.url.replace("redis://", "redis://deaf:word@"), namespace="shop")
    contracts = Contracts(agent, PLANS)
    with caplog.at_level(logging.WARNING, logger="reconverge"):
        reader = follow_hub(contracts, secret=SECRET)
        agent.start()
        eventually(lambda: any("does not permit" in each for each in caplog.messages), "that it is told")
        version = change(redis_server.url, "bob")
        eventually(lambda: version == contracts.version, "the second version")

    assert 1 == sum("does not permit" in each for each in caplog.messages)
    assert "word" not in caplog.text
    assert 0 == reader.stats().hinted
    assert FORBIDDEN_S > INTERVAL_S


def test_a_user_with_few_rights_hears_hints_and_gives_them(redis_server: RedisServer, make_agent: MakeAgent) -> None:
    """With the rights that the page about Redis names."""
    publish(redis_server.url, shop(ada="free"))
    rights = ["del", "eval", "evalsha", "hdel", "hget", "hgetall", "hmget", "hset", "pexpire", "pttl", "time"]
    commands = [f"+{each}" for each in (*rights, "subscribe", "publish")]
    with redis.Redis.from_url(redis_server.url) as client:
        client.execute_command(
            "ACL",
            "SETUSER",
            "few",
            "on",
            ">word",
            "resetkeys",
            "~shop:*",
            "resetchannels",
            "&shop:*",
            "-@all",
            *commands,
        )
    url = redis_server.url.replace("redis://", "redis://few:word@")
    contracts, reader = heard_by(make_agent, url)
    version = change(url, "bob")
    eventually(lambda: version == contracts.version, "the second version")

    assert reader.stats().hinted >= 1


def test_hints_can_be_switched_off(redis_server: RedisServer, make_agent: MakeAgent) -> None:
    """Then no connection listens, and the hub is looked at once in an interval."""
    publish(redis_server.url, shop(ada="free"))
    agent = make_agent(redis_server.url, namespace="shop")
    contracts = Contracts(agent, PLANS)
    reader = follow_hub(contracts, secret=SECRET, hints=False)
    agent.start()
    eventually(lambda: 1 == contracts.version, "the first version")
    with redis.Redis.from_url(redis_server.url) as client:
        listening = client.execute_command("PUBSUB", "NUMPAT"), client.pubsub_channels()

    assert (0, []) == listening
    assert None is reader._hints
    version = change(redis_server.url, "bob")
    eventually(lambda: version == contracts.version, "the second version")
