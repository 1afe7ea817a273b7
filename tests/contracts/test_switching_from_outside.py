"""Goal: a limit is switched for one customer, for a part of the keys and for a time, whichever way it is said.

Method: a file that is published, the command and the API change contracts at a real Redis; a node on a clock of the
test's decides by what is kept there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from reconverge import Agent
from reconverge.contracts.contracts import Contracts
from reconverge.contracts.model import Document
from reconverge.contracts.terms import is_among
from reconverge.hub.registry import HubSettings
from reconverge.testing import ManualClock
from reconverge_sync.redis.hub import RedisHub
from tests.contracts.operator import put_over_http
from tests.support.commands.checked import said_by
from tests.support.kept_contracts import book_at
from tests.support.published import SECRET
from tests.support.servers import RedisServer

NOON = 1_795_521_600.0
"""2026-11-24T12:00:00Z."""
FILE: dict[str, Any] = {
    "unknown": "free",
    "plans": {"free": {"limits": {"calls": "2/hour", "reports": "9/hour"}}},
    "customers": {"acme": "free", "other": "free"},
}
KEYS = [f"customer-{number}" for number in range(400)]
Change = Callable[[dict[str, Any], list[str]], None]
"""Makes the contract of `acme` say that; the words are those of the command."""


@pytest.fixture
def url(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where contracts are kept that switch nothing."""
    monkeypatch.setenv("RECONVERGE_SETTINGS_SECRET", SECRET)
    redis_server.command("FLUSHALL")
    return redis_server.url


@pytest.fixture(params=["file", "command", "api"])
def change(request: pytest.FixtureRequest, url: str, tmp_path: Path) -> Change:
    """Each of the ways in which contracts are changed."""

    def by_file(contract: dict[str, Any], _words: list[str]) -> None:
        publish(url, tmp_path, {**FILE, "customers": {**FILE["customers"], "acme": contract}})

    def by_command(_contract: dict[str, Any], words: list[str]) -> None:
        said = said_by("contracts", "set", "acme", "free", *words, "--hub", url, "--namespace", "shop")

        assert 0 == said.status, said.all

    def by_api(contract: dict[str, Any], _words: list[str]) -> None:
        put_over_http(url, "acme", contract)

    publish(url, tmp_path, FILE)
    ways: dict[str, Change] = {"file": by_file, "command": by_command, "api": by_api}
    return ways[request.param]


def publish(url: str, tmp_path: Path, said: dict[str, Any]) -> None:
    """Publish a file of contracts by command."""
    path = tmp_path / "contracts.yaml"
    path.write_text(yaml.safe_dump(said))
    done = said_by("contracts", "publish", path, "--hub", url, "--namespace", "shop")

    assert 0 == done.status, done.all


def node_at(url: str, clock: ManualClock, **settings: Any) -> Contracts:
    """A node that decides alone, by the contracts that are kept there."""

    async def read() -> tuple[int, Document]:
        hub = RedisHub(url, HubSettings("shop", 5.0))
        kept = await book_at(hub).read()
        await hub.close()
        return kept

    return Contracts(Agent("memory://", clock=clock), asyncio.run(read())[1], **settings)


def admitted(contracts: Contracts, customer: str, times: int = 5) -> int:
    """How many of so many requests are admitted."""
    return sum(contracts.hit(customer).allowed for _ in range(times))


def test_a_contract_is_switched_for_a_time(change: Change, url: str) -> None:
    """All limits of one customer refuse nothing until then, to the moment; those of another one do."""
    change(
        {"plan": "free", "switch": {"to": "shadow", "until": "2026-11-24T13:00:00Z"}},
        ["--switch", "shadow,until=2026-11-24T13:00:00Z"],
    )
    clock = ManualClock(start=NOON)
    contracts = node_at(url, clock)

    assert (5, 2) == (admitted(contracts, "acme"), admitted(contracts, "other"))
    assert contracts.explain("acme").sentence.endswith("(in shadow), so it can go on now.")
    clock.advance(3599.999)
    assert contracts.hit("acme").allowed
    clock.advance(0.001)
    assert not contracts.hit("acme").allowed


def test_one_limit_of_a_contract_is_switched(change: Change, url: str) -> None:
    """The other one holds."""
    change({"plan": "free", "switches": {"calls": "off"}}, ["--switch", "calls=off"])
    contracts = node_at(url, ManualClock(start=NOON))

    assert (9, 2) == (admitted(contracts, "acme", 12), admitted(contracts, "other"))


def test_a_cap_of_the_node_comes_before_each_switch(change: Change, url: str) -> None:
    """A node's own limit is neither tried out nor switched off from outside."""
    change(
        {"plan": "free", "switch": "off", "switches": {"calls": "shadow"}},
        ["--switch", "off", "--switch", "calls=shadow"],
    )
    contracts = node_at(url, ManualClock(start=NOON), caps={"calls": "1/hour"})

    assert (1, 1) == (admitted(contracts, "acme"), admitted(contracts, "other"))


@pytest.mark.parametrize("percent", [0, 25, 100])
def test_a_part_of_the_keys_is_in_shadow(url: str, tmp_path: Path, percent: float) -> None:
    """By the hash of the customer, and so the same ones on all nodes; about as many as were said."""
    calls = {"limit": "2/hour", "switch": {"to": "shadow", "percent": percent}}
    publish(url, tmp_path, {**FILE, "plans": {"free": {"limits": {"calls": calls}}}})
    nodes = [node_at(url, ManualClock(start=NOON)) for _ in range(2)]
    free = [[key for key in KEYS if admitted(node, key, 3) == 3] for node in nodes]

    assert [key for key in KEYS if is_among(key, "calls", percent)] == free[0] == free[1]
    assert {0: 0, 25: 93, 100: 400}[int(percent)] == len(free[0])


@pytest.mark.parametrize(
    ("word", "problem"),
    [
        ("", "must be on, shadow or off, or a limit and one of these, as in calls=off"),
        ("=off", "must be on, shadow or off, or a limit and one of these, as in calls=off"),
        ("paused", "paused"),
        ("call=off", "did you mean 'calls'?"),
        ("off,percent=ten", "has 'ten' for a percentage; write percent=10"),
        ("off,percent=101", "101"),
        ("off,percent=nan", "nan"),
        ("off,for=1h", "has 'for=1h', which is neither percent=10 nor until=MOMENT"),
        ("off,until=tomorrow", "tomorrow"),
    ],
)
def test_a_switch_that_makes_no_sense_changes_nothing(url: str, tmp_path: Path, word: str, problem: str) -> None:
    """And says what can be written."""
    publish(url, tmp_path, FILE)
    said = said_by("contracts", "set", "acme", "free", "--switch", word, "--hub", url, "--namespace", "shop")

    assert (2, "") == (said.status, said.stdout)
    assert problem in said.stderr
    assert 2 == admitted(node_at(url, ManualClock(start=NOON)), "acme")
