"""Goal: what is posted at a hub is what all read, until another is posted or its time is over; and reading it is cheap.

Method: each hub that is a settings store, then what is particular to Redis.
"""

from __future__ import annotations

import asyncio
from secrets import token_hex
from typing import Any, ClassVar

import pytest
import redis

from reconverge.clock import ManualClock
from reconverge.errors import HubUnavailable
from reconverge.hub import Hub, SettingsStore
from reconverge.hub.registry import HubSettings
from reconverge.testing import SettingsStoreClaims
from reconverge.testing.settings_store_claims import ClosableSettingsStore
from reconverge_sync.embedded.hub import EmbeddedHub
from reconverge_sync.memory import MemoryHub
from reconverge_sync.mqtt.hub import MqttHub
from reconverge_sync.redis.hub import RedisHub
from reconverge_sync.redis.settings import Posted, posted
from tests.support.brokers import Mosquitto
from tests.support.fixtures.servers import GuardedMosquitto, shop_url
from tests.support.servers import RedisServer, free_port
from tests.support.waiting import eventually

SETTINGS = HubSettings("shop", 5.0)
PATIENCE_S = 20.0
PAYLOAD = b"anything"
MAX = 1000
KEY = "shop:{0}:settings"


class TestSettingsInMemory(SettingsStoreClaims):
    """Without any connection."""

    def make_settings_store(self) -> ClosableSettingsStore:
        """A hub that nobody has used."""
        return MemoryHub()

    def make_settings_store_of_a_stranger(self, hub: ClosableSettingsStore) -> ClosableSettingsStore:
        """Another one: they have nothing to share."""
        return MemoryHub()


class _SettingsByUrl(SettingsStoreClaims):
    """At a server that a URL names; each process has an object of its own."""

    url: str
    opened: ClassVar[type[RedisHub | EmbeddedHub]]

    def make_settings_store(self) -> ClosableSettingsStore:
        """A hub of the namespace `shop`."""
        hub = self.opened(self.url, SETTINGS)
        assert isinstance(hub, SettingsStore)
        assert isinstance(hub, Hub)
        return hub

    def join_settings_store(self, hub: ClosableSettingsStore) -> ClosableSettingsStore:
        """Another one."""
        return self.make_settings_store()

    def make_settings_store_of_a_stranger(self, hub: ClosableSettingsStore) -> ClosableSettingsStore:
        """One of another namespace."""
        return self.opened(self.url, HubSettings("other", 5.0))


class TestSettingsOnRedis(_SettingsByUrl):
    """Through an object for each process."""

    opened = RedisHub

    @pytest.fixture(autouse=True)
    def at(self, redis_server: RedisServer) -> None:
        """At an empty server."""
        self.url = redis_server.url


class TestSettingsEmbedded(_SettingsByUrl):
    """In a server of its own, that is started for it."""

    opened = EmbeddedHub

    @pytest.fixture(autouse=True)
    def at(self) -> None:
        """Sets the URL of a server that no other test uses."""
        self.url = f"embedded://settings-{free_port()}"


class _SettingsOnMqtt(SettingsStoreClaims):
    """At a broker that keeps what is posted, by the protocol that `query` names."""

    query: ClassVar[str]
    url: str

    @pytest.fixture(autouse=True)
    def _broker(self, mosquitto: Mosquitto) -> None:
        self.url = mosquitto.url

    def make_settings_store(self) -> ClosableSettingsStore:
        """The first member of a namespace of its own."""
        self.namespace = f"shop-{token_hex(4)}"
        hub = self._member(self.namespace)
        assert isinstance(hub, SettingsStore)
        assert isinstance(hub, Hub)
        return hub

    def join_settings_store(self, hub: ClosableSettingsStore) -> ClosableSettingsStore:
        """One more."""
        return self._member(self.namespace)

    def make_settings_store_of_a_stranger(self, hub: ClosableSettingsStore) -> ClosableSettingsStore:
        """A member of another one."""
        return self._member(f"other-{token_hex(4)}")

    def _member(self, namespace: str) -> MqttHub:
        return MqttHub(f"{self.url}{self.query}", HubSettings(namespace, PATIENCE_S))


class TestSettingsMqttOld(_SettingsOnMqtt):
    """By MQTT 3.1.1."""

    query = "?protocol=3.1.1&shards=2"


class TestSettingsMqttNew(_SettingsOnMqtt):
    """By MQTT 5."""

    query = "?protocol=5"


class TestSettingsMqttEncrypted(_SettingsOnMqtt):
    """Over TLS, as a user who may do what the documents say and no more."""

    query = ""

    @pytest.fixture(autouse=True)
    def _broker(self, guarded_mosquitto: GuardedMosquitto) -> None:
        self.url = guarded_mosquitto.url()


class Cached(MemoryHub):
    """Goes on reading what it has read once."""

    first: bytes | None = None

    async def read(self, *, bytes_max: int) -> bytes | None:
        """The first."""
        self.first = self.first or await super().read(bytes_max=bytes_max)
        return self.first


class CutSettings(MemoryHub):
    """Makes whatever is too long look as if it were not."""

    async def read(self, *, bytes_max: int) -> bytes | None:
        read = await super().read(bytes_max=bytes_max)
        return None if read is None else read[:bytes_max]


class Empty(MemoryHub):
    """Does not tell nothing from something empty."""

    async def read(self, *, bytes_max: int) -> bytes | None:
        """Never None."""
        return await super().read(bytes_max=bytes_max) or b""


@pytest.mark.parametrize(
    ("wrong", "claim"),
    [
        (Cached, "test_what_was_posted_last_is_read_by_all"),
        (Cached, "test_every_reader_may_post"),
        (CutSettings, "test_something_too_long_is_seen_to_be_that"),
        (Empty, "test_before_anything_is_posted_nothing_is_read"),
    ],
)
def test_a_settings_store_that_breaks_a_promise_fails_a_claim(wrong: type[MemoryHub], claim: str) -> None:
    """Each of these faults is found by the claim that it is about."""

    class Claims(SettingsStoreClaims):
        patience_s = 0.05

        def make_settings_store(self) -> ClosableSettingsStore:
            return wrong()

    with pytest.raises(AssertionError):
        getattr(Claims(), claim)()


def test_a_hub_in_memory_keeps_it_for_its_time() -> None:
    """And not a moment longer."""
    clock = ManualClock(start=0)
    hub = MemoryHub(clock=clock)
    asyncio.run(hub.post(PAYLOAD, keep_s=60.0))
    clock.advance(59.999)
    assert PAYLOAD == asyncio.run(hub.read(bytes_max=MAX))
    clock.advance(0.001)

    assert None is asyncio.run(hub.read(bytes_max=MAX))


async def test_a_redis_keeps_it_for_its_time(redis_server: RedisServer) -> None:
    """It is gone by itself, and readers see that."""
    with redis.Redis(unix_socket_path=str(redis_server.socket)) as admin:
        hub = RedisHub(redis_server.url, SETTINGS)
        await hub.post(PAYLOAD, keep_s=100_000.0)
        await hub.read(bytes_max=MAX)
        left_ms: Any = admin.pttl(KEY)
        await hub.post(PAYLOAD, keep_s=0.001)
        await asyncio.to_thread(eventually, lambda: not admin.exists(KEY), "its end")
        read = await hub.read(bytes_max=MAX)
        await hub.close()

    assert 0 < left_ms <= 100_000_000
    assert None is read


def test_reading_is_one_command_and_fetches_nothing_twice(redis_server: RedisServer) -> None:
    """However long what is posted is: only a mark travels until another is posted."""
    payload = b"x" * 60_000

    async def live(admin: redis.Redis) -> tuple[int, int]:
        hub = RedisHub(redis_server.url, SETTINGS)
        await hub.post(payload, keep_s=60.0)
        await hub.read(bytes_max=100_000)
        before: Any = admin.info("stats")
        for _ in range(10):
            assert payload == await hub.read(bytes_max=100_000)
        after: Any = admin.info("stats")
        evals: Any = admin.info("commandstats")["cmdstat_eval"]["calls"]
        await hub.close()
        return evals, after["total_net_output_bytes"] - before["total_net_output_bytes"]

    with redis.Redis(unix_socket_path=str(redis_server.socket)) as admin:
        admin.config_resetstat()
        evals, sent_bytes = asyncio.run(live(admin))

    assert 12 == evals
    assert sent_bytes < 60_000


async def test_a_user_with_few_rights_can_read_and_post(acl_redis: RedisServer) -> None:
    """No further right is needed: what was posted is believed for its signature alone."""
    hub = RedisHub(shop_url(acl_redis), SETTINGS)
    await hub.post(PAYLOAD, keep_s=60.0)
    read = await hub.read(bytes_max=MAX)
    await hub.close()

    assert PAYLOAD == read


def test_what_was_put_there_by_hand_is_no_harm(redis_server: RedisServer) -> None:
    """Something else under that key, a mark without a payload, a mark of any length."""

    async def read() -> object:
        hub = RedisHub(redis_server.url, SETTINGS)
        try:
            read = [await hub.read(bytes_max=MAX), await hub.read(bytes_max=MAX)]
        except HubUnavailable as error:
            return error.kind
        finally:
            await hub.close()
        return read

    found: list[object] = []
    for words in (
        ("SET", KEY, "x"),
        ("RPUSH", KEY, "x"),
        ("HSET", KEY, "payload", "x"),
        ("HSET", KEY, "mark", "m"),
        ("HSET", KEY, "mark", "", "payload", "x"),
        ("HSET", KEY, "mark", "m" * 5000, "payload", "x"),
    ):
        redis_server.command("FLUSHALL")
        redis_server.command(*words)
        found.append(asyncio.run(read()))

    assert ["script", "script", [None, None], [b"", b""], [b"x", b"x"], [b"x", b"x"]] == found


async def test_a_server_that_is_away_is_unavailable() -> None:
    """And nothing else is raised."""
    hub = RedisHub(f"redis://127.0.0.1:{free_port()}/0", SETTINGS)
    kinds: list[str] = []
    for question in (hub.read(bytes_max=MAX), hub.post(PAYLOAD, keep_s=1.0)):
        try:
            await question
        except HubUnavailable as error:
            kinds.append(error.kind)
    await hub.close()

    assert ["refused", "refused"] == kinds


@pytest.mark.parametrize(
    "reply", [None, b"x", 7, [7], ["mark"], [b"mark", 7], [b"mark"], [b"a", b"b", b"c"], [[b"a"], b"b"], {}], ids=repr
)
def test_any_other_reply_is_a_protocol_error(reply: object) -> None:
    """A server may answer anything that is none of ours."""
    with pytest.raises(HubUnavailable, match=r"^protocol: "):
        posted(reply, Posted())
