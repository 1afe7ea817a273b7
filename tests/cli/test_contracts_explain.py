"""Goal: support staff ask why a customer is refused, and forgive what it has used, by one command each.

Method: the commands as they are typed, at a real Redis at which an agent decides, and where they cannot work.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reconverge import Agent
from reconverge.contracts.contracts import Contracts
from reconverge.contracts.following import follow_hub
from tests.support.commands.checked import Said, said_by
from tests.support.published import OTHER, SECRET
from tests.support.servers import RedisServer, free_port
from tests.support.waiting import eventually

KEY_SECRET = "of the keys, and long enough"  # noqa: S105  # a test's own
FILE = """
unknown: free
plans:
  free:
    limits: {calls: 5/day}
  pro:
    limits:
      calls: 7/day
      user: {limit: 3/day, by: [customer, user]}
customers:
  ada: pro
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of contracts; the secret is in the environment."""
    monkeypatch.setenv("RECONVERGE_SETTINGS_SECRET", SECRET)
    path = tmp_path / "contracts.yaml"
    path.write_text(FILE)
    return path


@pytest.fixture
def at(redis_server: RedisServer, file: Path) -> tuple[str, ...]:
    """Where the commands go; the file is published there."""
    redis_server.command("FLUSHALL")
    at = "--hub", redis_server.url, "--namespace", "shop"
    said_by("contracts", "publish", file, *at)
    return at


@pytest.fixture
def node(at: tuple[str, ...], redis_server: RedisServer) -> Iterator[Contracts]:
    """A node that decides by what is published; the command is none."""
    with Agent(redis_server.url, namespace="shop", sync_interval=0.02, exchange_timeout=5.0) as agent:
        contracts = Contracts(agent, {"plans": {"p": {"limits": {"calls": "1/day"}}}})
        follow_hub(contracts)
        eventually(lambda: contracts.version == 1, "the contracts")
        yield contracts


def explain(*words: object) -> Said:
    return said_by("contracts", "explain", *words)


def used(*words: object) -> dict[str, int]:
    return {each["name"]: each["used"] for each in json.loads(explain(*words, "--json").stdout)["limits"]}


def test_the_first_line_can_be_pasted_and_the_table_has_the_numbers(node: Contracts, at: tuple[str, ...]) -> None:
    """The sentence is that of the node; nothing goes to the error stream."""
    assert [True] * 5 + [False] == [node.ask_blocking("acme", within=5.0).allowed for _ in range(6)]
    eventually(lambda: used("acme", *at) == {"calls": 5}, "the report")

    said = explain("acme", *at)

    first, empty, about, head, row = said.stdout.splitlines()
    assert (0, "", "") == (said.status, said.stderr, empty)
    assert first.startswith("acme may send 5 requests a day and has sent 5; it can go on in ")
    assert "plan free, by version 1 of the contracts; used and left as the hub has it of all nodes" == about
    assert "limit quota used left held refill go on in switch by" == " ".join(head.split())
    assert ["calls", "5", "in", "24", "hours", "5", "0", "0", "5", "hours"] == row.split()[:10]
    assert ["on", "customer"] == row.split()[-2:]


def test_a_customer_is_forgiven_on_running_nodes(node: Contracts, at: tuple[str, ...]) -> None:
    """At once when the command is back; what counts by a fact that is not said is left alone, which is told."""
    facts: dict[str, Any] = {"user": "a b"}
    assert [True] * 3 + [False] == [node.ask_blocking("ada", within=5.0, **facts).allowed for _ in range(4)]
    eventually(lambda: used("ada", *at, "--fact", "user=a b") == {"calls": 3, "user": 3}, "the report")

    first = said_by("contracts", "reset", "ada", *at)
    between = used("ada", *at, "--fact", "user=a b")
    second = said_by("contracts", "reset", "ada", *at, "--fact", "user=a b", "--json")

    assert (0, "ada: forgotten on all nodes: calls\n") == (first.status, first.stdout)
    assert "left alone: user; say --fact user=...\n" == first.stderr
    assert {"calls": 0, "user": 3} == between
    assert {"version": 1, "customer": "ada", "reset": ["calls", "user"], "left_alone": {}} == json.loads(second.stdout)
    assert {"calls": 0, "user": 0} == used("ada", *at, "--fact", "user=a b")
    eventually(lambda: node.usages("ada", **facts)["user"].total == 0, "the node's next exchange")
    assert [True] * 3 + [False] == [node.ask_blocking("ada", within=5.0, **facts).allowed for _ in range(4)]


def test_with_the_secret_of_keys_they_are_found(
    at: tuple[str, ...], redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of nodes that hash keys, which obey contracts at the hub all the same; and forgiven likewise."""
    monkeypatch.setenv("RECONVERGE_KEY_SECRET", KEY_SECRET)
    with Agent(redis_server.url, namespace="shop", sync_interval=0.02, exchange_timeout=5.0) as agent:
        node = Contracts(agent, {"plans": {"p": {"limits": {"calls": "1/day"}}}})
        follow_hub(node)
        eventually(lambda: node.version == 1, "the contracts")
        admitted = sum(node.ask_blocking("acme", within=5.0).allowed for _ in range(6))
        eventually(lambda: used("acme", *at) == {"calls": 5}, "the report")
        said_by("contracts", "reset", "acme", *at)

        assert 5 == admitted
        assert {"calls": 0} == used("acme", *at)


def test_contracts_may_come_from_a_file(at: tuple[str, ...], file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of fleets that have them so; no secret is needed then."""
    monkeypatch.delenv("RECONVERGE_SETTINGS_SECRET")
    file.write_text(FILE.replace("5/day", "6/day"))

    said = explain("acme", *at, "--file", file)

    assert "acme may send 6 requests a day and has sent 0; it can go on now." == said.stdout.splitlines()[0]
    assert f"plan free, by {file}; " in said.stdout


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("ada",), "limit 'user' counts by 'user', which no --fact names; add --fact user=..."),
        (("ada", "--fact", "user"), "--fact='user': must be a name and a value, as in user=ada"),
        (("ada", "--fact", "user=a", "--fact", "user=b"), "--fact='user=b': names user again"),
        (
            ("ada", "--fact", "user=a", "--fact", "usr=a"),
            "makes no difference to this customer: its limits count by user; did you mean 'user'?",
        ),
        (("acme", "--fact", "user=a"), "makes no difference to this customer: its limits count by the customer alone"),
        (("acme", "--fact", "customer=b"), "names the customer again, as the argument IDENTITY does; leave it out"),
        (("a\x00b",), "NUL"),
        (("x" * 600,), "512"),
        (("",), "customer"),
    ],
)
def test_what_makes_no_sense_is_refused(at: tuple[str, ...], words: tuple[str, ...], problem: str) -> None:
    """With what to do, and nothing on the output."""
    said = explain(*words, *at)

    assert (2, "") == (said.status, said.stdout)
    assert problem in said.stderr


@pytest.mark.parametrize("customer", ["a\nb", "\u202eacme", "Crème & Söhne", "\x1b[2J", "x" * 512])
def test_any_name_of_a_customer_is_asked_about(at: tuple[str, ...], customer: str) -> None:
    """None of them moves the cursor; the longest counts under its hash."""
    for said in (explain(customer, *at), said_by("contracts", "reset", customer, *at)):
        assert (0, "") == (said.status, said.stderr)
        assert all(letter.isprintable() or letter == "\n" for letter in said.stdout)
    assert {"calls": 0} == used(customer, *at)


@pytest.mark.parametrize("command", ["explain", "reset"])
def test_a_hub_that_cannot_be_asked_is_told(command: str, at: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no nodes meet, nothing is published, nothing answers, or the secret is another one."""
    where = {
        "memory://": "is no hub that nodes share",
        at[1]: "has no contracts at redis://",
    }
    for url, problem in where.items():
        said = said_by("contracts", command, "acme", "--hub", url, "--namespace", "elsewhere")

        assert (2, "") == (said.status, said.stdout)
        assert problem in said.stderr
    away = said_by("contracts", command, "acme", "--hub", f"redis://:sesame@127.0.0.1:{free_port()}/0")
    monkeypatch.setenv("RECONVERGE_SETTINGS_SECRET", OTHER)
    stranger = said_by("contracts", command, "acme", *at)

    assert (2, "") == (away.status, away.stdout)
    assert "refused" in away.stderr
    assert "sesame" not in away.stderr
    assert (2, "") == (stranger.status, stranger.stdout)
    assert "secret" in stranger.stderr
