"""Goal: commands show what was used and export it once. Method: the commands against a real Redis."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from reconverge import ReconvergeError
from reconverge.cli.app import app
from reconverge.clock import SystemClock
from reconverge.hub.registry import HubSettings
from reconverge.usage import period_at, period_name
from reconverge_sync.redis.hub import RedisHub
from tests.support.commands.checked import Said, said_by
from tests.support.metered import MeteredNode, on
from tests.support.servers import RedisServer

DAY_S = 86_400


def run(server: RedisServer, *words: object) -> Said:
    """Runs the command; a mistake is shown as `main` would show it."""
    return said_by("usage", words[0], "--hub", server.url, "--namespace", "shop", *words[1:])


@pytest.fixture
def used(redis_server: RedisServer) -> RedisServer:
    """Yesterday acme was charged 5 and 10, and zeta 7; one request of zeta was refused."""

    class Yesterday(SystemClock):
        """One day behind."""

        @staticmethod
        def wall_ns() -> int:
            return SystemClock.wall_ns() - DAY_S * 10**9

    hub = RedisHub(redis_server.url, HubSettings("shop", 30.0))
    node = MeteredNode(hub.usage, Yesterday(), "node")
    node.meter.add("acme", "api", 5, "/a")
    node.meter.add("acme", "tokens", 10)
    node.meter.add("zeta", "api", 7)
    node.meter.add("zeta", "api", refused=True)
    assert on(hub, node.driver.leave)
    return redis_server


def yesterday() -> str:
    return period_name(period_at("day", SystemClock.wall_ns() / 1e9 - DAY_S))


def test_show_prints_what_was_used(used: RedisServer) -> None:
    """By identity and limit, or by what is asked for; as a table or as JSON."""
    said = run(used, "show", "--period", yesterday())
    assert 0 == said.status
    assert [
        ["identity", "limit", "cost", "requests", "refused"],
        ["acme", "api", "5", "1", "0"],
        ["acme", "tokens", "10", "1", "0"],
        ["zeta", "api", "7", "1", "1"],
    ] == [line.split() for line in said.stdout.splitlines()[1:]]

    rows = json.loads(run(used, "show", "--period", yesterday(), "--by", "identity", "--json").stdout)
    assert {"acme": 15, "zeta": 7} == {row["identity"]: row["cost"] for row in rows}
    assert "nothing" in run(used, "show", "--period", "2020-01").stdout


def test_top_prints_the_largest_first(used: RedisServer) -> None:
    """By cost, or by what is asked for."""
    rows = json.loads(run(used, "top", "--period", yesterday(), "--json").stdout)
    assert ["acme", "zeta"] == [row["identity"] for row in rows]
    rows = json.loads(run(used, "top", "--period", yesterday(), "--by", "refused", "--most", 1, "--json").stdout)
    assert ["zeta"] == [row["identity"] for row in rows]


def test_addresses_prints_identities_with_many(redis_server: RedisServer) -> None:
    """From all nodes together, in this hour."""
    for place in range(2):
        hub = RedisHub(redis_server.url, HubSettings("shop", 30.0))
        node = MeteredNode(hub.usage, SystemClock(), f"node {place}")

        async def tell(node: MeteredNode = node, place: int = place) -> None:
            for _ in range(2):  # a node takes the secret of the fleet before it tells anything
                for number in range(5):
                    node.meter.addresses.note("acme", f"192.0.2.{place * 5 + number}")
                node.meter.addresses.note("zeta", "192.0.2.1")
                await node.driver.report()

        on(hub, tell)

    said = run(redis_server, "addresses", "--least", 5, "--json")
    (row,) = json.loads(said.stdout)
    assert "acme" == row["identity"]
    assert 8 <= row["addresses"] <= 12


def test_load_prints_what_nodes_do(used: RedisServer) -> None:
    """Each node with its requests and cost per second."""
    assert "node" in run(used, "load").stdout


@pytest.mark.parametrize("form", ["cloudevents", "jsonl", "csv"])
def test_export_writes_each_event_once(form: str, used: RedisServer, tmp_path: Path) -> None:
    """The second run finds nothing to write; a file is appended to, with one header."""
    file = tmp_path / "events"
    for _ in range(2):
        assert 0 == run(used, "export", "--format", form, "--to", file, "--period", "hour").status
    lines = file.read_text().splitlines()

    costs: Counter[str] = Counter()
    rows: list[dict[str, Any]] = list(csv.DictReader(lines) if form == "csv" else map(json.loads, lines))
    for row in rows:
        flat = row["data"] if form == "cloudevents" else row
        costs[flat["identity"]] += int(flat["cost"])
    assert {"acme": 15, "zeta": 7} == costs


def lead(server: RedisServer, exporter: str, keep_s: float) -> None:
    """Makes another exporter lead that is not heard of again."""
    hub = RedisHub(server.url, HubSettings("shop", 30.0))
    assert on(hub, lambda: hub.usage.lead_export("hour", exporter, keep_s)).leads


def test_export_waits_for_the_lease_of_an_exporter_that_has_ended(used: RedisServer) -> None:
    """It says for which one; an empty file with a status of success would be taken for no usage."""
    lead(used, "other:1:killed", 0.5)
    said = run(used, "export", "--period", "hour", "--format", "jsonl")

    assert 0 == said.status
    assert 3 == len([line for line in said.stdout.splitlines() if line.startswith("{")])
    assert "another exporter, other:1:killed, is at work until 2" in said.stderr


def test_export_ends_with_another_status_while_another_exporter_is_at_work(used: RedisServer) -> None:
    """It says which one, and until when; nothing is written."""
    lead(used, "other:1:busy", 3600)
    said = run(used, "export", "--period", "hour", "--format", "jsonl")

    assert 1 == said.status
    assert "" == said.stdout
    assert "another exporter, other:1:busy, is at work until 2" in said.stderr
    assert "nothing was exported" in said.stderr


def test_an_export_that_has_ended_holds_up_no_other(used: RedisServer, tmp_path: Path) -> None:
    """It makes room at its end, also where its file cannot be written."""
    assert 2 == run(used, "export", "--period", "hour", "--to", "/dev/full").status
    for _ in range(2):
        said = run(used, "export", "--period", "hour", "--to", tmp_path / "events")
        assert 0 == said.status
        assert "another exporter" not in said.stderr


def test_export_writes_to_standard_output(used: RedisServer) -> None:
    """And says beside it how much that was."""
    said = run(used, "export", "--period", "hour", "--format", "jsonl")

    assert 3 == len([json.loads(line) for line in said.stdout.splitlines() if line.startswith("{")])


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("show", "--period", "yesterday"), "is none of minute, hour, day, month"),
        (("show", "--period", "2026-13"), "is no period like"),
        (("show", "--by", "price"), "may name identity, limit, route"),
        (("top", "--by", "price"), "is none of cost, requests, refused"),
        (("export", "--period", "week"), "is none of minute"),
        (("export", "--to", "/nowhere/at/all"), "cannot be written"),
    ],
)
def test_a_mistake_is_told_in_a_sentence(words: tuple[str, ...], problem: str, used: RedisServer) -> None:
    """And nothing is exported."""
    said = run(used, *words)

    assert 2 == said.status
    assert problem in said.stderr


def test_a_hub_that_adds_no_usage_up_is_told_of() -> None:
    """With what to name instead."""
    result = CliRunner().invoke(app, ["usage", "show", "--hub", "memory://"])

    assert isinstance(result.exception, ReconvergeError)
    assert "added up" in str(result.exception)


def test_names_move_no_cursor(redis_server: RedisServer) -> None:
    """Identities come from outside, and a terminal would obey some letters."""
    hub = RedisHub(redis_server.url, HubSettings("shop", 30.0))
    node = MeteredNode(hub.usage, SystemClock(), "node")
    node.meter.add("\x1b[2Jacme", "api")
    on(hub, node.driver.leave)

    said = run(redis_server, "show")
    assert "?[2Jacme" in said.stdout
    assert "\x1b" not in said.stdout
