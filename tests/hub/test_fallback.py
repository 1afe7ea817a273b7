"""Goal: with a second hub, decisions go on within their bound while the first is away, and nothing is lost or doubled.

Method: two real Redis servers and agents with real loops, in one process and in several; the first server hangs, or is
killed and comes back empty.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from reconverge import Agent, Hub, HubUnavailable, InvalidSetting
from reconverge.clock import SECOND_NS, ManualClock, SystemClock
from reconverge.hub import SettingsStore
from reconverge.hub.fallback import selector, two_hubs
from reconverge.integrations.config import load
from reconverge_sync.memory import MemoryHub
from tests.support.agents import NEVER_FULL, admitted_of, net_at
from tests.support.programs.process import Process
from tests.support.servers import RedisServer
from tests.support.waiting import eventually

QUOTA = 100
PROCESSES = 3


@pytest.fixture
def two_redises(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[RedisServer, RedisServer]]:
    """The primary and the fallback; agents of this process ask soon whether the primary is back."""
    monkeypatch.setattr(selector, "PROBE_NS", SECOND_NS // 10)
    with ExitStack() as servers:
        yield servers.enter_context(RedisServer()), servers.enter_context(RedisServer())


def test_decisions_go_on_and_counts_are_exact(
    two_redises: tuple[RedisServer, RedisServer], caplog: pytest.LogCaptureFixture
) -> None:
    """The primary is killed, the fallback takes over; the primary comes back, empty, and in the end knows all."""
    caplog.set_level(logging.WARNING, "reconverge")
    primary, fallback = two_redises
    with Agent(primary.url, fallback=fallback.url, sync_interval=0.02, exchange_timeout=1.0) as agent:
        login = agent.limit("login", NEVER_FULL)
        admitted = admitted_of(login, 10)
        eventually(lambda: net_at(primary.url) == admitted, "the primary knows")

        primary.kill()
        eventually(lambda: net_at(fallback.url) == admitted, "the fallback knows")
        admitted += admitted_of(login, 10)
        eventually(lambda: net_at(fallback.url) == admitted, "the fallback goes on")

        primary.start()
        eventually(lambda: net_at(primary.url) == admitted, "the primary knows again")
        admitted += admitted_of(login, 10)
        eventually(lambda: net_at(primary.url) == admitted, "the primary goes on")
        assert 30 == admitted
    assert 30 == net_at(primary.url)
    said = [record.getMessage() for record in caplog.records if "fallback until" in record.getMessage()]
    assert ["reconverge: the primary hub does not answer; this node uses the fallback until it does"] == said


@pytest.mark.slow
def test_a_primary_that_hangs_is_left_and_found_again(two_redises: tuple[RedisServer, RedisServer]) -> None:
    """It keeps its data meanwhile: what it knew is replaced and not added to."""
    primary, fallback = two_redises
    with Agent(primary.url, fallback=fallback.url, sync_interval=0.02, exchange_timeout=0.5) as agent:
        login = agent.limit("login", NEVER_FULL)
        admitted = admitted_of(login, 10)
        eventually(lambda: net_at(primary.url) == admitted, "the primary knows")
        primary.pause()
        try:
            admitted += admitted_of(login, 10)
            eventually(lambda: net_at(fallback.url) == admitted, "the fallback knows")
        finally:
            primary.resume()
        admitted += admitted_of(login, 10)
        eventually(lambda: net_at(primary.url) == admitted, "the primary knows all")
        eventually(lambda: login.usage("ada").total == admitted, "so does the node")


@pytest.mark.slow
def test_several_processes_stay_within_twice_the_bound(two_redises: tuple[RedisServer, RedisServer]) -> None:
    """They ask as fast as they can while the primary is killed and comes back; nothing is lost, and nothing doubled."""
    primary, fallback = two_redises
    processes = [Process("ask_on", primary.url, fallback.url, str(QUOTA), module="fallback") for _ in range(PROCESSES)]
    for process in processes:
        assert "ready" == process.says()
    primary.kill()
    for process in processes:
        assert "moved" == process.says()
    primary.start()
    for process in processes:
        assert "back" == process.says()
    for process in processes:
        process.go_on()
    ended = [process.ends() for process in processes]
    admitted = [int(line) for status, lines in ended for line in lines if status == 0]

    assert PROCESSES == len(admitted)
    assert net_at(primary.url, "many") == sum(admitted)
    # In the one window that there is, of a year: balanced dares a tenth more, and two hubs twice that.
    assert 0 < net_at(primary.url, "few") <= 2 * (QUOTA * 1.1 + PROCESSES)


@pytest.mark.parametrize("hub", ["memory://", None])
def test_a_fallback_needs_somebody_to_fall_back_from(
    hub: str | None, two_redises: tuple[RedisServer, RedisServer]
) -> None:
    """Who meets nobody is told so where it was declared."""
    with pytest.raises(InvalidSetting, match="needs two hubs"):
        Agent(hub or two_redises[0].url, fallback="memory://" if hub is None else two_redises[0].url)


def test_both_hubs_divide_keys_alike() -> None:
    """Else what is one part at one of them would be several at the other."""
    one: Hub = MemoryHub()
    with pytest.raises(InvalidSetting, match="divides keys into 4 shards, the hub into 1"):
        Agent(one, fallback=MemoryHub(shards=4))


def test_passwords_of_the_fallback_are_not_shown() -> None:
    """Neither in a repr nor in statistics."""
    agent = Agent("redis://ada:secret1@localhost/0", fallback="redis://bob:secret2@localhost/1")

    assert "secret" not in repr(agent) + agent.stats().hub
    assert "fallback" in agent.stats().hub


async def test_settings_are_read_at_the_primary_alone() -> None:
    """Nothing is posted at the fallback, so who is with that keeps to what he has read before."""
    primary, clock = MemoryHub(), SystemClock()
    hub = two_hubs(primary, MemoryHub(), clock=clock, timeout_s=1.0, name="second")
    assert isinstance(hub, SettingsStore)
    await hub.post(b"news", keep_s=60.0)
    assert b"news" == await primary.read(bytes_max=10) == await hub.read(bytes_max=10)
    for shard in hub._shards:
        for _ in range(selector.FAILURES_MAX):
            shard.choice.exchanged(answered=False, now_ns=clock.monotonic_ns())
    with pytest.raises(HubUnavailable, match="settings are read from the primary"):
        await hub.read(bytes_max=10)


def test_a_file_of_settings_names_it_as_well(tmp_path: Path, two_redises: tuple[RedisServer, RedisServer]) -> None:
    """And can be reloaded, where the fallback stays as it is."""
    primary, fallback = two_redises
    path = tmp_path / "shop.toml"
    path.write_text(f'hub = "{primary.url}"\nfallback = "{fallback.url}"\n[limits]\nlogin = "5/hour"\n')
    configuration = load(path)
    configuration.reload()

    assert f"{primary.url} (fallback {fallback.url})" == configuration.agent.stats().hub


class BusyHub(MemoryHub):
    """A hub with work of its own."""

    at_work = True


def test_the_loop_goes_on_while_either_hub_is_at_work() -> None:
    """A member of a broker has to answer others, though it is only the fallback."""

    def at_work(primary: MemoryHub, fallback: MemoryHub) -> bool:
        return two_hubs(primary, fallback, clock=ManualClock(0.0), timeout_s=1.0, name="fallback").at_work

    assert [True, True, False] == [
        at_work(BusyHub(), MemoryHub()),
        at_work(MemoryHub(), BusyHub()),
        at_work(MemoryHub(), MemoryHub()),
    ]
