"""Goal: an operator sees at one glance, and live, how a fleet is, and a terminal is left as it was.

Method: the commands as they are typed, the live one in a process of its own at a pseudo-terminal, at a real Redis.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from secrets import token_hex
from typing import Any

import pytest

from reconverge import Agent
from reconverge.cli.doctor.checkup import Checkup
from reconverge.cli.watch.look import WatchLook, limit_rows
from reconverge.cli.watch.status import FleetStatus, show
from reconverge.hub.adopting import HubData
from reconverge.hub.report import Totals
from reconverge.usage import Meter, UsageReporter
from tests.support.commands.checked import said_by
from tests.support.commands.processes import run
from tests.support.servers import RedisServer, free_port
from tests.support.twin import PATHS, ROOT
from tests.support.waiting import eventually

LEAVES_SCREEN = "\x1b[?1049l"
SHOWS_CURSOR = "\x1b[?25h"
ROWS, COLUMNS = 24, 80


@pytest.fixture
def node(redis_server: RedisServer) -> Iterator[Agent]:
    """An agent that has charged two limits, of which the hub knows."""
    namespace = f"shop-{token_hex(4)}"
    with Agent(redis_server.url, namespace=namespace, sync_interval=0.02, exchange_timeout=5.0) as agent:
        for cost, name, limit in ((3, "login", "100/day"), (7, "search", "100/31 days")):
            assert agent.limit(name, limit).ask_blocking("ada", cost, within=5.0).allowed
        where = ("--hub", redis_server.url, "--namespace", namespace)
        eventually(lambda: [7, 3] == [each["charged"] for each in rows(*where)], "the hub knows the charges")
        yield agent


def rows(*words: object) -> list[dict[str, Any]]:
    """The rows of one look."""
    said: list[dict[str, Any]] = json.loads(said_by("top", "--once", "--json", *words).stdout)["rows"]
    return said


@pytest.fixture
def where(node: Agent, redis_server: RedisServer) -> tuple[str, ...]:
    """Where the commands look."""
    return "--hub", redis_server.url, "--namespace", node.namespace


def test_status_tells_hub_nodes_and_limits(where: tuple[str, ...]) -> None:
    """Memory and, as a window is long, persistence of the hub; how many nodes live; limits, the largest first."""
    done = run("status", *where)
    said = json.loads(said_by("status", "--json", *where).stdout)

    assert "" == done.stderr
    assert done.returncode == (0 if said["ok"] else 1)
    assert ["search", "login"] == [each["limit"] for each in said["limits"]]
    assert [7, 3] == [each["charged"] for each in said["limits"]]
    assert (1, 0) == (said["nodes"], said["shards_lost"])
    assert {"memory", "durability"} <= {each["check"] for each in said["findings"]}
    assert all(word in done.stdout for word in ("memory: ", "durability: ", "nodes   1\n", "search"))


def test_a_new_hub_holds_strict_limits_back_for_a_moment_and_no_longer(where: tuple[str, ...]) -> None:
    """As long as nodes may report what they know; then `status` tells of no wait."""
    eventually(lambda: 0 == json.loads(said_by("status", "--json", *where).stdout)["shards_waiting"], "the hub grants")

    assert "strict limits" not in said_by("status", *where).stdout


@pytest.mark.parametrize(
    ("lost", "until", "why"),
    [
        (False, "until 2026-11-29 10:00:02+00:00: ", "the hub is new"),
        (True, "until a lease and two of their windows after 2026-11-29 10:00:00+00:00: ", "`reconverge hub adopt`"),
    ],
)
def test_status_tells_until_when_strict_limits_admit_no_new_keys(
    lost: bool, until: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the clock of the hub, and why."""
    begun_us = 1_795_946_400_000_000
    data = HubData(begun_us + 1, "g1", lost, begun_us, begun_us + 2_000_000, 1, 0)
    found = FleetStatus(Checkup([], None), [data], WatchLook("limit", 0.0, 1, (), 0, {}))
    show(found, "redis://localhost:6379/0", "shop")
    said = capsys.readouterr().out

    assert f"data    strict limits admit no new keys {until}" in said
    assert why in said


def test_status_without_a_hub_that_answers_ends_with_status_2() -> None:
    """And shows no password."""
    done = said_by("status", "--hub", f"redis://ada:sesame@127.0.0.1:{free_port()}/0")

    assert 2 == done.status
    assert "refused" in done.stderr
    assert "sesame" not in done.all
    assert "`reconverge doctor --hub URL` says what to correct" in done.stderr


def test_top_tells_of_an_outage_once() -> None:
    """With the hub's name and what to do about it, however often it has looked in vain."""
    url = f"redis://127.0.0.1:{free_port()}/0"
    process = subprocess.Popen(
        [sys.executable, "-m", "reconverge", "top", "--interval", "0.2", "--hub", url],
        env={**os.environ, "PYTHONPATH": PATHS, "PYTHONUNBUFFERED": "1"},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    first = process.stdout.readline()
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(2.0)  # it goes on looking
    process.send_signal(signal.SIGINT)
    others = process.communicate(timeout=60)[0]

    assert f"the hub {url} is unavailable" in first
    assert f"`reconverge doctor --hub {url}` says what to correct; trying again every 0.2 s" in first
    assert not others.strip()


def test_top_shows_the_largest_limits_and_how_many_are_left_out(where: tuple[str, ...]) -> None:
    """The option sets how many."""
    said = json.loads(said_by("top", "--once", "--json", "--most", 1, *where).stdout)
    shown = said_by("top", "--once", "--most", 1, *where).stdout

    assert ["search"] == [each["limit"] for each in said["rows"]]
    assert (1, 1, "limit") == (said["left_out"], said["nodes"], said["by"])
    assert "and 1 more" in shown


def test_top_shows_nodes_and_keys_where_usage_is_metered(
    node: Agent, where: tuple[str, ...], redis_server: RedisServer
) -> None:
    """Otherwise it says how to have them."""
    before = [said_by("top", "--once", "--by", by, *where).stdout for by in ("node", "key")]
    meter = Meter()
    with UsageReporter(meter, redis_server.url, namespace=node.namespace, interval=0.1):
        meter.add("ada", "login", 5, "/login")
        eventually(lambda: rows("--by", "key", *where), "the report")
        by_key = rows("--by", "key", *where)
        by_node = rows("--by", "node", *where)

    assert all("nothing is metered" in each for each in before)
    assert ("ada", 5) == (by_key[0]["key"], by_key[0]["cost"])
    assert {"node", "requests/s", "cost/s"} == set(by_node[0])


def test_a_rate_is_what_was_charged_between_two_looks() -> None:
    """A limit that is new, or whose total fell because the hub has lost its data, has none."""
    before = WatchLook("limit", 10.0, 1, (), 0, {"login": Totals(100, 0), "search": Totals(50, 0)})
    found = limit_rows({"login": Totals(160, 5), "search": Totals(5, 0), "new": Totals(1, 0)}, before, 12.0)

    assert [("login", 30.0), ("search", None), ("new", None)] == [(row["limit"], row["charged/s"]) for row in found]


def test_what_nothing_can_be_sorted_by_is_told(redis_server: RedisServer) -> None:
    """With the words that there are."""
    done = said_by("top", "--by", "nodes", "--hub", redis_server.url)

    assert 2 == done.status
    assert "must be limit, node, key; did you mean 'node'?" in done.stderr


def test_each_look_is_one_line_of_json_until_ctrl_c(where: tuple[str, ...]) -> None:
    """With status 130 then, and no traceback."""
    process = subprocess.Popen(
        [sys.executable, "-m", "reconverge", "top", "--json", "--interval", "0.2", *where],
        env={**os.environ, "PYTHONPATH": PATHS, "PYTHONUNBUFFERED": "1"},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    looks = [json.loads(process.stdout.readline()) for _ in range(3)]
    process.send_signal(signal.SIGINT)
    errors = process.communicate(timeout=60)[1]

    assert 130 == process.returncode
    assert "Traceback" not in errors
    assert [None, 0.0, 0.0] == [each["rows"][0]["charged/s"] for each in looks]


def test_ctrl_c_leaves_the_terminal_in_order(where: tuple[str, ...]) -> None:
    """The screen of before is back, and the cursor is visible, after whatever was shown last."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    kept = {name: each for name, each in os.environ.items() if name not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        [sys.executable, "-m", "reconverge", "top", "--interval", "0.2", *where],
        env={**kept, "PYTHONPATH": PATHS, "TERM": "xterm-256color"},
        cwd=ROOT,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    said, interrupted = "", False
    while True:
        try:
            chunk = os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
        if not chunk:
            break
        said += chunk.decode()
        if "search" in said and not interrupted:
            interrupted = True
            process.send_signal(signal.SIGINT)
    os.close(ours)
    process.wait(60)

    assert 130 == process.returncode
    assert "Traceback" not in said
    assert said.rindex("search") < said.rindex(LEAVES_SCREEN)
    assert said.rindex("search") < said.rindex(SHOWS_CURSOR)
