"""Goal: contracts at a hub are published, read, changed and rolled back by one command each, which says what it did.

Method: the commands as they are typed, at a real Redis, and a node that follows.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from reconverge import Agent
from reconverge.clock import Clock
from reconverge.contracts.store.index import INDEX
from reconverge.contracts.store.reader import ContractsReader
from reconverge.published.envelope import Secrets, Verifier
from tests.support.commands.checked import said_by
from tests.support.published import OTHER, SECRET
from tests.support.servers import RedisServer, free_port
from tests.support.waiting import eventually

run = partial(said_by, "contracts")

FILE = """
unknown: free
plans:
  free:
    limits: {calls: 50/second}
  pro:
    limits: {calls: 1000/second}
  trial:
    limits: {calls: 10/second}
    lasts: P14D
    then: free
customers:
  ada: pro
  bob: {plan: free, limits: {calls: 70/second}}
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of contracts; the secret is in the environment."""
    monkeypatch.setenv("RECONVERGE_SETTINGS_SECRET", SECRET)
    path = tmp_path / "contracts.yaml"
    path.write_text(FILE)
    return path


@pytest.fixture
def at(redis_server: RedisServer) -> tuple[str, ...]:
    """Where the commands go."""
    return "--hub", redis_server.url, "--namespace", "shop"


def contract_of(identity: str, at: tuple[str, ...]) -> Any:
    return json.loads(run("get", identity, *at).stdout)["contract"]


def test_a_file_is_obeyed_by_a_running_agent(file: Path, at: tuple[str, ...], redis_server: RedisServer) -> None:
    """And so is what is set afterwards; the command says the version, and no secret."""
    with Agent(redis_server.url, namespace="shop", sync_interval=0.02, exchange_timeout=5.0) as agent:
        reader = agent.follow(follower)
        published = run("publish", file, *at)
        eventually(lambda: reader.version == 1, "the file")
        known = reader.document
        changed = run("set", "ada", "free", *at)
        eventually(lambda: reader.version == 2, "the change")
    listed = run("list", *at)

    assert (0, "published version 1 for namespace shop: customers: 2\n") == (published.status, published.stdout)
    assert ["pro", "free"] == [document.customers["ada"].plan for document in (known, reader.document)]
    assert "ada\tfree\nbob\tfree\town: calls\n" == listed.stdout
    assert "version 2, plans: free, pro, trial, customers: 2, unknown: free\n" == listed.stderr
    assert SECRET not in published.all + changed.all + listed.all


def follower(clock: Clock, interval_ns: Callable[[], int]) -> ContractsReader:
    """Follows, and tells none of it."""
    verifier = Verifier(INDEX, "shop", Secrets(SECRET))
    return ContractsReader(verifier, clock, interval_ns=interval_ns, apply=lambda _version, _document: None)


def test_customers_are_set_and_removed(file: Path, at: tuple[str, ...]) -> None:
    """Each command says the version that it has made; what is not said is as in the plan."""
    run("publish", file, *at)
    said = [
        run("set", "ada", "free", "--limit", "calls=60/second", "--note", "since May", *at),
        run("set", "cyd", "trial", "--since", "2026-11-23T12:00:00Z", *at),
        run("set", "dan", "pro", "--until", "2026-12-24", "--then", "free", *at),
        run("remove", "bob", *at),
    ]

    assert [
        "version 2 for namespace shop: ada is on free\n",
        "version 3 for namespace shop: cyd is on trial\n",
        "version 4 for namespace shop: dan is on pro\n",
        "version 5 for namespace shop: bob has no contract\n",
    ] == [each.stdout for each in said]
    assert {"plan": "free", "limits": {"calls": "60/second"}, "note": "since May"} == contract_of("ada", at)
    assert {"plan": "trial", "since": "2026-11-23T12:00:00Z"} == contract_of("cyd", at)
    assert {"plan": "pro", "until": "2026-12-24T00:00:00Z", "then": "free"} == contract_of("dan", at)
    gone = run("get", "bob", *at)
    assert (1, "") == (gone.status, gone.stdout)
    assert "'bob' has no contract at version 5; for unknown customers: free" in gone.stderr
    assert "dan\tpro\n" == run("list", "--plan", "pro", *at).stdout


def test_the_history_and_the_way_back(file: Path, at: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Under the name that was said, or else the user's."""
    monkeypatch.setenv("LOGNAME", "grace")
    run("publish", file, "--author", "root", *at)
    run("set", "ada", "free", *at)
    lines = [line.split("\t") for line in run("history", *at).stdout.splitlines()]
    told = json.loads(run("history", "--json", "--identity", "ada", *at).stdout)
    back = run("rollback", 1, *at)

    assert [["2", "grace", "ada"], ["1", "root", "all contracts"]] == [[each[0], *each[2:4]] for each in lines]
    assert '{"plan": "pro"} -> {"plan": "free"}' == lines[0][4]
    assert [(2, {"plan": "pro"}, {"plan": "free"})] == [
        (each["version"], each["before"], each["after"]) for each in told
    ]
    assert "published version 3 for namespace shop: as at version 1\n" == back.stdout
    assert {"plan": "pro"} == contract_of("ada", at)


def test_what_is_listed_can_be_published(file: Path, at: tuple[str, ...]) -> None:
    """The whole document, as JSON."""
    run("publish", file, *at)
    whole = run("list", "--json", *at).stdout
    (again := file.with_suffix(".json")).write_text(whole)

    assert 0 == run("publish", again, *at).status
    assert whole == run("list", "--json", *at).stdout


def test_a_change_for_another_version_changes_nothing(file: Path, at: tuple[str, ...]) -> None:
    """Of a file, of a customer."""
    run("publish", file, *at)
    said = [
        run("publish", file, "--expected", 0, *at),
        run("set", "ada", "free", "--expected", 2, *at),
        run("remove", "ada", "--expected", 2, *at),
    ]

    assert [2, 2, 2] == [each.status for each in said]
    assert all("the contracts are at version 1, and the change was made for" in each.stderr for each in said)
    assert {"plan": "pro"} == contract_of("ada", at)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("set", "ada", "gold"), "there is no plan 'gold'; known: free, pro, trial"),
        (("set", "ada", "trial"), "customers.ada.since: is missing"),
        (("set", "ada", "free", "--limit", "calls"), "must be a name and a limit string, as in calls=100/minute"),
        (("set", "ada", "free", "--limit", "calls=1/day", "--limit", "calls=2/day"), "names the limit calls again"),
        (("set", "ada", "free", "--limit", "cals=1/day"), "did you mean 'calls'?"),
        (("set", "ada", "free", "--until", "soon", "--then", "pro"), "'soon' is no moment like"),
        (("set", "ada", "free", "--author", "a\nb"), "is no name of an author"),
        (("remove", "eve"), "customers.eve: has no contract to remove"),
        (("rollback", "7"), "version 7 of the contracts is not kept; kept versions: from 1 to 1"),
    ],
)
def test_a_mistake_is_told_and_nothing_is_changed(
    file: Path, at: tuple[str, ...], words: tuple[str, ...], problem: str
) -> None:
    """With the name that was meant, where one is near."""
    run("publish", file, *at)
    said = run(*words, *at)

    assert 2 == said.status
    assert problem in said.stderr
    assert {"plan": "pro"} == contract_of("ada", at)


def test_a_file_that_makes_no_sense_is_told_with_its_line(file: Path, at: tuple[str, ...]) -> None:
    """Before anything is asked of a hub."""
    file.write_text(FILE.replace("ada: pro", "ada: gold"))
    said = run("publish", file, *at)

    assert 2 == said.status
    assert "contracts.yaml" in said.stderr
    assert "13" in said.stderr
    assert "there is no plan 'gold'" in said.stderr
    assert 0 == json.loads(run("list", "--json", *at).stdout).get("version", 0)


def test_contracts_of_another_secret_are_replaced_by_force_alone(
    file: Path, at: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nodes may go by them."""
    run("publish", file, *at)
    monkeypatch.setenv("RECONVERGE_SETTINGS_SECRET", OTHER)
    refused = run("publish", file, *at)
    monkeypatch.setenv("RECONVERGE_CONTRACTS_MIN_VERSION", "2")
    forced = run("publish", file, "--force", *at)

    assert (2, 0) == (refused.status, forced.status)
    assert "is not signed with any of the secrets known here" in refused.stderr
    assert "published version 2 for" in forced.stdout
    assert OTHER not in refused.all + forced.all


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("memory://", "is no hub that nodes share, so no contracts can be kept there; give the URL of the nodes' hub"),
        ("mqtt://127.0.0.1:{port}", "refused"),
        ("redis://127.0.0.1:{port}/0", "refused"),
    ],
)
def test_a_hub_that_keeps_none_is_told_of(file: Path, url: str, problem: str) -> None:
    """In memory, and where there is no broker or server."""
    said = run("publish", file, "--hub", url.format(port=free_port()))

    assert 2 == said.status
    assert problem in said.stderr


@pytest.mark.parametrize("minimum", ["many", "-1", "9" * 40, "1.5", "\u0663"])
def test_a_minimum_that_is_no_version_is_told_of(
    file: Path, at: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, minimum: str
) -> None:
    """By the name of the variable."""
    monkeypatch.setenv("RECONVERGE_CONTRACTS_MIN_VERSION", minimum)
    said = run("publish", file, *at)

    assert 2 == said.status
    assert "RECONVERGE_CONTRACTS_MIN_VERSION" in said.stderr


def test_without_a_secret_nothing_is_asked(file: Path, at: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """And the error says how to make one."""
    monkeypatch.delenv("RECONVERGE_SETTINGS_SECRET")
    said = run("publish", file, *at)

    assert 2 == said.status
    assert "openssl rand -hex 32" in said.stderr


def test_each_change_tells_its_version_as_json(file: Path, at: tuple[str, ...], redis_server: RedisServer) -> None:
    """Nothing else is on the output, and a customer without a contract is null with status 1."""
    redis_server.command("FLUSHALL")
    changes = (("publish", file), ("set", "eve", "pro"), ("remove", "eve"), ("rollback", 2))
    said = [json.loads(run(*words, "--json", *at).stdout) for words in changes]
    unknown = run("get", "nemo", "--json", *at)

    assert [{"version": version, "namespace": "shop"} for version in (1, 2, 3, 4)] == said
    assert (1, None, "free") == (
        unknown.status,
        json.loads(unknown.stdout)["contract"],
        json.loads(unknown.stdout)["unknown"],
    )


def test_files_are_compared_as_json(file: Path, tmp_path: Path) -> None:
    """With the same statuses as in words."""
    other = tmp_path / "other.yaml"
    other.write_text(FILE.replace("1000/second", "2000/second"))
    counted, compared = run("validate", file, "--json"), run("diff", file, other, "--json")

    assert (3, 2) == (json.loads(counted.stdout)["plans"], json.loads(counted.stdout)["customers"])
    (difference,) = json.loads(compared.stdout)
    assert (1, ["plans", "pro", "limits", "calls"]) == (compared.status, difference["path"])
