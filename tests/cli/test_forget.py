"""Goal: one command erases an identity from contracts, limits and usage, and says truly what is left.

Method: the command as it is typed, at a real Redis that is searched, with nodes that have the identity.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from reconverge import ReconvergeError
from reconverge.cli.app import app
from reconverge.contracts.contracts import Contracts
from reconverge.contracts.following import follow_hub
from reconverge.contracts.store.hub_book import HubBook
from reconverge.hub.registry import HubSettings
from reconverge.published.envelope import Secrets
from reconverge.usage import Meter, UsageReporter
from reconverge_sync.redis.hub import RedisHub
from tests.support.commands.checked import NEEDED, Said, said_by
from tests.support.fixtures.agents import MakeAgent
from tests.support.published import SECRET
from tests.support.searched import stored
from tests.support.servers import RedisServer
from tests.support.waiting import eventually

KEY_SECRET = "a secret of the fleet that is long"  # noqa: S105  # a test's own
DOCUMENT = {
    "unknown": "free",
    "plans": {
        "free": {"limits": {"calls": "50/hour"}},
        "pro": {"limits": {"calls": "90/hour", "by-user": {"limit": "9/hour", "by": ["customer", "user"]}}},
    },
    "customers": {"acme": "pro", "globex": "pro"},
}


@pytest.fixture(autouse=True)
def own_data(redis_server: RedisServer) -> None:
    """Nothing of other tests."""
    redis_server.command("FLUSHALL")


def run(server: RedisServer, *words: str) -> Said:
    """Runs the command; a mistake is shown as `main` would show it."""
    return said_by("forget", *words, "--hub", server.url, "--namespace", "shop")


def publish(server: RedisServer) -> None:
    """Keep the contracts at the hub, in two versions."""

    async def put() -> None:
        hub = RedisHub(server.url, HubSettings("shop", 5.0))
        book = HubBook(hub, "shop", Secrets(SECRET))
        await book.replace(DOCUMENT, author="ops")
        await book.set_customer("acme", "free", author="ops")
        await book.set_customer("acme", "pro", author="ops")
        await hub.close()

    asyncio.run(put())


@pytest.mark.parametrize("secret", [None, KEY_SECRET], ids=["plain", "hashed"])
def test_nothing_is_left_of_a_customer(
    secret: str | None,
    make_agent: MakeAgent,
    redis_server: RedisServer,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Of its contract, all versions and files of it, of its limits by all facts on two nodes, and of its usage."""
    monkeypatch.setenv("RECONVERGE_SETTINGS_SECRET", SECRET)
    if secret:
        monkeypatch.setenv("RECONVERGE_KEY_SECRET", secret)
    publish(redis_server)
    nodes = []
    files = [tmp_path / name for name in ("one", "two")]
    for file in files:
        meter = Meter()
        contracts = Contracts(make_agent(redis_server.url, namespace="shop"), DOCUMENT, meter=meter)
        follow_hub(contracts, file=file)
        nodes.append((contracts, UsageReporter(meter, redis_server.url, namespace="shop", interval=0.1)))
    for contracts, reporter in nodes:
        reporter.start()
        for customer in ("acme", "globex"):
            eventually(lambda c=contracts, k=customer: c.hit(k, user="ada").allowed, "admission")  # type: ignore[misc]
        eventually(lambda r=reporter: r.stats().answered and not r.stats().unreported, "a report")  # type: ignore[misc]
    eventually(lambda: all(contracts.version == 3 for contracts, _ in nodes), "the contracts")
    eventually(lambda: all(_told(contracts) for contracts, _ in nodes), "the reports of limits")

    said = run(redis_server, "acme")

    assert (0, "") == (said.status, said.stderr)
    assert "at version 4 without it" in said.stdout
    eventually(lambda: b"acme" not in stored(redis_server.url), "nothing to be left")
    assert b"globex" in stored(redis_server.url)
    eventually(lambda: not any(_known(contracts) for contracts, _ in nodes), "all nodes to forget")
    for contracts, reporter in nodes:
        eventually(lambda c=contracts: c.version == 4, "the contracts without it")  # type: ignore[misc]
        assert "acme" not in repr((contracts.meter.take(), contracts.meter.addresses))  # type: ignore[union-attr]
        assert "free" == contracts.terms("acme").plan
        reporter.stop()
    assert b"acme" not in stored(redis_server.url)
    eventually(lambda: not any(b"acme" in file.read_bytes() for file in files), "files without it")
    assert all(b"globex" in file.read_bytes() for file in files)
    assert (0, False) == (run(redis_server, "acme").status, b"acme" in stored(redis_server.url))


def _told(contracts: Contracts) -> bool:
    """Whether the hub has answered about both limits of both customers."""
    limiters = [limiter for _, limiter in contracts.standing("acme").parts]
    keys = [("acme", "globex"), ("acme|ada", "globex|ada")]
    return all(
        limiter.usage(key).staleness < float("inf")
        for limiter, some in zip(limiters, keys, strict=True)
        for key in some
    )


def _known(contracts: Contracts) -> bool:
    tables = contracts.agent._kernel.tables.values()
    return "acme" in repr((list(contracts._standings), [list(table.cells) for table in tables]))


async def test_a_key_in_use_is_told_of(make_agent: MakeAgent, redis_server: RedisServer) -> None:
    """With what to do, and status 1; as JSON, too."""
    agent = make_agent(redis_server.url, namespace="shop")
    limiter = agent.limit("login", "1/minute", algorithm="token-bucket")

    eventually(lambda: limiter.allow("ada"), "admission")
    call = asyncio.create_task(limiter.wait("ada", timeout=120))
    await asyncio.sleep(0.2)
    found = [await asyncio.to_thread(run, redis_server, "ada", "--wait", "0", *more) for more in ((), ("--json",))]
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    plain, as_json = found[0], found[1]

    assert (1, 1) == (plain.status, as_json.status)
    assert "End the requests" in plain.stderr
    assert [1, False] == [json.loads(as_json.stdout)[name] for name in ("kept", "complete")]


def test_contracts_are_not_left_alone_unasked(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the secret nothing can be taken from them, so nothing is done at all."""
    monkeypatch.delenv("RECONVERGE_SETTINGS_SECRET", raising=False)
    publish(redis_server)

    said = run(redis_server, "acme")

    assert 2 == said.status
    assert "--keep-contract" in said.all
    assert 0 == run(redis_server, "acme", "--keep-contract").status
    assert b"acme" in stored(redis_server.url)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("memory://", "no identity can be erased"),
        ("mqtt://127.0.0.1:1", "the hub mqtt://127.0.0.1:1 cannot erase identities"),
    ],
    ids=["memory://", "mqtt://127.0.0.1:1"],
)
def test_a_hub_from_which_nothing_can_be_erased_says_so(url: str, problem: str) -> None:
    """Loudly, and before anything is done."""
    result = CliRunner().invoke(app, ["forget", "ada", "--hub", url])

    assert isinstance(result.exception, ReconvergeError)
    assert problem in str(result.exception)


def test_a_user_that_may_not_search_is_told(redis_server: RedisServer) -> None:
    """Rights that do for an agent do not do for that."""
    redis_server.command(
        *["ACL", "SETUSER", "few", "on", ">few", "resetkeys", "~shop:*", "resetchannels", "-@all"],
        *(f"+{name}" for name in NEEDED),
    )
    url = redis_server.url.replace("redis://", "redis://few:few@")

    result = CliRunner().invoke(app, ["forget", "ada", "--hub", url, "--namespace", "shop"])

    assert isinstance(result.exception, ReconvergeError)
    assert "scan" in str(result.exception).lower()
    assert "few:few" not in str(result.exception)
