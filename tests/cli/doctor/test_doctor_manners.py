"""The doctor speaks to persons and to scripts, about every kind of hub, and shows no secrets."""

from __future__ import annotations

import json
import os
import re
from functools import partial
from pathlib import Path

import pytest

from reconverge_sync.embedded import hub as embedded
from tests.support.commands import processes
from tests.support.commands.checked import PASSWORD, USER, allow, check, say
from tests.support.servers import RedisServer
from tests.support.twin import PATHS

run = partial(processes.run, "doctor")


def test_a_healthy_server_passes_every_check(redis_server: RedisServer) -> None:
    """All is well, all checks are named in a fixed order, and the status says so."""
    checked = check(redis_server.url)

    names = ["reached", "login", "server", "permission", "exchange", "memory", "clients", "keys"]
    names += ["round trip", "clock"]
    assert names == [finding["check"] for finding in checked.report["findings"]]
    assert names[:-2] == checked.at("ok")
    assert 0 == checked.status


def test_the_report_is_one_json_object(redis_server: RedisServer) -> None:
    """Scripts find the promised fields, with the hub as it may be shown."""
    report = json.loads(say("--json", "--hub", redis_server.url).stdout)

    assert {"hub", "ok", "findings", "round_trip_ms", "clock_offset_ms"} == set(report)
    assert {"check", "level", "fact", "remedy"} == set(report["findings"][0])
    assert redis_server.url == report["hub"]
    assert report["ok"] is True
    assert 0 < report["round_trip_ms"]
    assert isinstance(report["clock_offset_ms"], float)


def test_memory_has_nothing_to_check() -> None:
    """There is no hub, and that is no problem."""
    checked = check("memory://")

    assert "nothing to check" in checked.only("hub")["fact"]
    assert 0 == checked.status


@pytest.mark.slow
def test_the_embedded_server_is_started_and_checked(monkeypatch: pytest.MonkeyPatch, short_path: Path) -> None:
    """The private server gets the findings of any Redis."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_path))
    done = run("--hub", "embedded://", "--json", "--namespace", "shop", XDG_RUNTIME_DIR=str(short_path))
    report = json.loads(done.stdout)

    assert "embedded://" == report["hub"]
    assert ["start", "reached", "login"] == [finding["check"] for finding in report["findings"][:3]]
    assert "starts" in report["findings"][0]["fact"]
    assert report["ok"] is True


def test_an_embedded_server_that_cannot_start_is_a_finding(monkeypatch: pytest.MonkeyPatch, short_path: Path) -> None:
    """The binary and the directory are named."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_path))
    monkeypatch.setenv("RECONVERGE_REDIS_SERVER", "/bin/false")
    monkeypatch.setattr(embedded, "START_S", 0.3)

    checked = check("embedded://broken")

    assert "/bin/false did not start" in checked.only("start")["fact"]
    assert str(short_path) in checked.only("start")["remedy"]
    assert 1 == checked.status


THIRD_PARTY = """
from reconverge import HubUnavailable
from reconverge_sync.memory import MemoryHub


class ForeignHub(MemoryHub):
    def __init__(self, url, settings):
        super().__init__()
        self.namespace = settings.namespace

    async def exchange(self, batch):
        {exchange}

    async def close(self):
        raise OSError
"""


def install_foreign_hub(directory: Path, exchange: str, *, preamble: str = "") -> str:
    """Install a stranger's package with a hub for `foreign://`; returns the path on which it is found."""
    (directory / "foreign_hub.py").write_text(preamble + THIRD_PARTY.format(exchange=exchange))
    information = directory / "foreign_hub-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: foreign-hub\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text("[reconverge.hubs]\nforeign = foreign_hub:ForeignHub\n")
    return os.pathsep.join((str(directory), PATHS))


@pytest.mark.parametrize(
    ("exchange", "fact", "status"),
    [
        ("return await super().exchange(batch)", "works", 0),
        ("raise HubUnavailable('broken', 'it is')", "failed (broken: it is)", 1),
        ("raise HubUnavailable('seen', self.namespace)", "(seen: shop:doctor-", 1),
        ("return (await super().exchange(batch))._replace(cells=(None,))", "failed (protocol: ", 1),
        ("raise KeyError(batch)", "raised KeyError", 1),
        ("raise TimeoutError", "raised TimeoutError", 1),
    ],
)
def test_a_strangers_hub_is_tried_in_a_scratch_namespace(tmp_path: Path, exchange: str, fact: str, status: int) -> None:
    """One that cannot examine itself is at least exchanged with, and whatever it does is told."""
    path = install_foreign_hub(tmp_path, exchange)

    done = run("--json", "--hub", "foreign://x", "--namespace", "shop", PYTHONPATH=path)

    assert fact in json.loads(done.stdout)["findings"][0]["fact"]
    assert status == done.returncode
    assert "" == done.stderr


def test_a_missing_package_is_a_finding_with_the_command_that_installs_it(tmp_path: Path) -> None:
    """The URL is right; it is the installation that lacks something."""
    path = install_foreign_hub(tmp_path, "pass", preamble="import surely_not_installed")

    done = run("--hub", "foreign://x", PYTHONPATH=path)

    assert "problem  installed   a foreign:// hub needs the package" in done.stdout
    assert "    pip install 'reconverge[redis]'" in done.stdout.splitlines()
    assert 1 == done.returncode


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--hub", "rediz://x"], "no hub is known for 'rediz'"),
        (["--hub", "localhost"], "is not a URL"),
        (["--hub", "redis://x:notaport"], "a port is a number"),
        (["--hub", "redis://x/notanumber"], "is no number"),
        (["--hub", "rediss://x?ssl_ca_cert=/x"], "an option that is not known: ssl_ca_cert"),
        (["--hub", "rediss://x?ssl_cert_reqs=maybe"], "ssl_cert_reqs"),
        (["--hub", "redis://x[y"], "cannot be read"),
        (["--hub", "embedded://a[b"], "has an invalid name"),
        (["--namespace", "a b"], "namespace"),
        (["--timeout", "0"], "exchange_timeout"),
        (["--timeout", "nan"], "exchange_timeout"),
        (["--sync-interval", "-1"], "sync_interval"),
        (["--sync-interval", "often"], "--sync-interval"),
        (["--frobnicate"], "--frobnicate"),
    ],
)
def test_a_mistake_on_the_command_line_is_a_sentence(options: list[str], sentence: str) -> None:
    """It ends with status 2, without a traceback, and before anything was checked."""
    said = say(*options)

    assert 2 == said.status
    assert sentence in said.stderr
    assert "Traceback" not in said.stderr
    assert "" == said.stdout


@pytest.mark.parametrize(
    "url",
    [
        "redis://{user}:{password}@127.0.0.1:{port}/0",
        "redis://{user}:{password}@127.0.0.1:{port}/1",
        "redis://{user}:{password}@127.0.0.1:1/0",
        "redis://{user}:{password}@127.0.0.1:{port}/nowhere",
        "redis://{user}:x/{password}@127.0.0.1:{port}",
        "redis://{user}/{password}@127.0.0.1:{port}",
        "redis://{user}:x?{password}@127.0.0.1:{port}",
        "redis://{user}:x#{password}@127.0.0.1:{port}",
        "redis://{user}:x[{password}@127.0.0.1:{port}",
        "redis://{user}:x@{password}@127.0.0.1:{port}",
        "redis://127.0.0.1:{port}/0?password={password}&username={user}",
        "redis://127.0.0.1:{port}/0?password=x@{password}&username={user}",
        "{user}:{password}@127.0.0.1",
        "embedded://{user}:{password}@x",
        "rediz://{user}:{password}@x",
    ],
)
def test_credentials_are_never_shown(own_redis: RedisServer, url: str) -> None:
    """Not in a report, not in JSON, not in the sentence about a mistake, however mangled the URL is."""
    allow(own_redis, "+eval")
    mangled = url.format(user=USER, password=PASSWORD, port=own_redis.port)

    shown = say("--hub", mangled).all + say("--hub", mangled, "--json").all

    assert PASSWORD not in shown
    assert USER not in shown
    assert "Traceback" not in shown
    assert "***" in shown or "rediz" in url


@pytest.mark.slow
def test_the_status_is_that_of_the_worst_finding(own_redis: RedisServer) -> None:
    """Warnings alone are no failure, a problem is one."""
    own_redis.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    warned = run("--hub", own_redis.url)
    own_redis.command("CONFIG", "SET", "maxmemory", "100mb")
    failed = run("--hub", own_redis.url)

    assert "1 warning." in warned.stdout
    assert 0 == warned.returncode
    assert "1 problem." in failed.stdout
    assert 1 == failed.returncode


def test_the_hub_of_the_environment_is_checked(redis_server: RedisServer) -> None:
    """The doctor looks at RECONVERGE_HUB, as agents do."""
    done = run(RECONVERGE_HUB=redis_server.url)

    assert f"Checking {redis_server.url} for namespace default" == done.stdout.splitlines()[0]


@pytest.mark.slow
def test_prose_fits_into_80_columns_and_commands_stay_whole(own_redis: RedisServer) -> None:
    """No line of prose is too long for a small terminal; a command is on one line, so that it can be copied."""
    url = allow(own_redis, "+time")
    lines = run("--hub", url, "--namespace", "shop", COLUMNS="80", NO_COLOR="1").stdout.splitlines()

    commands = [line for line in lines if line.startswith("    ACL")]
    assert 4 == len(commands)
    assert all(len(line) <= 80 for line in lines if line not in commands)
    assert all(line == line.rstrip() for line in lines)
    assert not any("\x1b" in line for line in lines)


def test_a_terminal_of_any_kind_can_show_it(tmp_path: Path) -> None:
    """The output is ASCII, with any URL, and square brackets are no markup."""
    shown = say("--hub", f"redis+unix://{tmp_path}/%1b[31m[red]\u00fc/redis.sock").all

    assert shown.isascii()
    assert "\x1b" not in shown
    assert "[red]" in re.sub(r"\s+", "", shown)
