"""Goal: agents find the master wherever it is, write to nothing else, and a failover loses nothing for good.

Method: agents and hubs on a real master, a replica that can be cut off from it, and three Sentinels.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from reconverge import Agent
from reconverge.clock import SystemClock
from reconverge.errors import HubUnavailable
from reconverge.hub.registry import HubSettings
from reconverge.hub.report import Totals
from reconverge.testing.claims.scenes.scene import Scene
from reconverge_sync.sentinel.hub import SentinelHub
from tests.support.redis_sentinel import QUICK_MS, SERVICE, RedisService
from tests.support.servers import free_port
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow  # several servers are started, and found

SETTINGS = HubSettings("shop", 30.0)
PATIENCE_S = 60.0
UNREPLICATED = 50


@pytest.fixture
def service() -> Iterator[RedisService]:
    """A service of this test's own."""
    with RedisService(down_after_ms=QUICK_MS) as own:
        yield own


def test_a_failover_to_a_replica_that_lagged_is_made_up_for_by_one_report(service: RedisService) -> None:
    """Fifty exchanges that only the dead master had heard of are whole again with the next one: counts are absolute."""
    with Agent(service.url, namespace="shop", sync_interval=0.01, max_silence=0, exchange_timeout=PATIENCE_S) as agent:
        login = agent.limit("login", "1000000/day")
        eventually(lambda: agent.ready, "the master answers", PATIENCE_S)
        admitted = sum(login.allow("ada") for _ in range(100))
        eventually(lambda: _known(service) == Totals(admitted, 0), "all is known", PATIENCE_S)
        _is_replicated(service)
        service.cut_link()
        for _ in range(UNREPLICATED):
            admitted += login.allow("ada")
            _tells(agent)
        assert Totals(admitted, 0) == _known(service)

        service.master.kill()
        eventually(service.has_failed_over, "the replica takes over", PATIENCE_S)
        eventually(lambda: _known(service) == Totals(admitted - UNREPLICATED, 0), "what it knows", PATIENCE_S)
        admitted += login.allow("ada")

        eventually(lambda: _known(service) == Totals(admitted, 0), "all is known again", PATIENCE_S)
    assert 0 == agent.stats().exchanges[0].rebirths
    assert Totals(admitted, 0) == _known(service)


def test_a_master_that_hangs_is_left_for_the_one_that_the_sentinels_name(service: RedisService) -> None:
    """It need not refuse: an exchange that gets no answer is reason enough to ask again."""
    with Agent(service.url, namespace="shop", sync_interval=0.01) as agent:
        login = agent.limit("login", "1000000/day")
        eventually(lambda: agent.ready, "the master answers", PATIENCE_S)
        admitted = sum(login.allow("ada") for _ in range(100))
        eventually(lambda: _known(service) == Totals(admitted, 0), "all is known", PATIENCE_S)

        service.master.pause()
        try:
            eventually(service.has_failed_over, "the replica takes over", PATIENCE_S)
            admitted += login.allow("ada")

            eventually(lambda: _known(service) == Totals(admitted, 0), "all is known again", PATIENCE_S)
        finally:
            service.master.resume()


async def test_a_replica_is_never_written_to_nor_read(service: RedisService) -> None:
    """Though the Sentinels should name it: whoever is no master says so before it is asked anything."""
    hub = SentinelHub(service.url, SETTINGS)
    voice = Scene(hub, SystemClock(), join=lambda known: known).voice()
    kinds: list[str] = []
    try:
        await voice.says_hello()
        # What a failover does, before any Sentinel has heard of it.
        service.master.command("REPLICAOF", "127.0.0.1", str(service.replica.port))
        service.master.command("CLIENT", "KILL", "TYPE", "normal")
        for question in (voice.says_hello, hub.totals, voice.says_hello):
            try:
                await question()
            except HubUnavailable as error:
                kinds.append(error.kind)
    finally:
        await hub.close()

    assert {"read-only", "connection"} >= set(kinds)
    assert "read-only" in kinds[1:]
    assert len(kinds) == 3


async def test_sentinels_that_are_away_or_hang_do_not_matter_while_most_answer(service: RedisService) -> None:
    """They are asked all at once: nobody waits for one who does not answer."""
    hanging = service.sentinels[0]
    url = service.url.replace(f"/{SERVICE}", f",127.0.0.1:{free_port()}/{SERVICE}")
    assert hanging._process is not None

    hanging._process.send_signal(signal.SIGSTOP)
    try:
        async with asyncio.timeout(PATIENCE_S):
            assert {} == (await _totals(url, HubSettings("shop", 100 * PATIENCE_S)))
    finally:
        hanging._process.send_signal(signal.SIGCONT)


def test_a_service_that_no_sentinel_knows_is_named(service: RedisService) -> None:
    """It is most likely mistyped."""
    hub = service.url.replace(SERVICE, "mistyped")

    with pytest.raises(
        HubUnavailable, match=r"^unknown-service: the Sentinel at .* knows no service 'mistyped'; correct the URL$"
    ):
        asyncio.run(_totals(hub, SETTINGS))
    (found,) = asyncio.run(SentinelHub(hub, SETTINGS).diagnose()).findings
    assert found.remedy.endswith(f"redis-cli -u redis://{urlsplit(hub).netloc.split(',')[0]} SENTINEL MASTERS")


def _known(service: RedisService) -> Totals | None:
    """Returns the hub's totals, at any server; None while it is at none."""
    try:
        return asyncio.run(_totals(service.url, HubSettings("shop", 5.0))).get("login", Totals(0, 0))
    except HubUnavailable:
        return None


async def _totals(url: str, settings: HubSettings) -> dict[str, Totals]:
    hub = SentinelHub(url, settings)
    try:
        return await hub.totals()
    finally:
        await hub.close()


def _tells(agent: Agent) -> None:
    """Wait for one more exchange."""
    before = agent.stats().exchanges[0].exchanges
    eventually(lambda: agent.stats().exchanges[0].exchanges > before, "an exchange", PATIENCE_S)


def _is_replicated(service: RedisService) -> None:
    """Wait until the replica has heard all that its master has."""
    offset = "master_repl_offset:"

    def heard(said: str, name: str) -> str:
        return said.partition(name)[2].partition("\r\n")[0]

    eventually(
        lambda: (
            heard(service.master.command("INFO", "replication"), offset)
            == heard(service.replica.command("INFO", "replication"), "slave_repl_offset:")
        ),
        "the replica has heard all",
        PATIENCE_S,
    )
