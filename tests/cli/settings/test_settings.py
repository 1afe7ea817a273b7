"""Goal: one command has a whole fleet obey a file, and whatever is wrong with that is told before anything is sent."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest

from reconverge import Agent
from reconverge.clock import SystemClock
from reconverge.hub.registry import HubSettings, open_hub
from reconverge.published.envelope import Secrets, UnverifiedDocument
from reconverge.published.publisher import publish as publish_settings
from reconverge.published.settings import FleetSettings
from tests.support.brokers import Mosquitto
from tests.support.commands.checked import Said, said_by
from tests.support.fixtures.servers import GuardedMosquitto
from tests.support.published import OTHER, SECRET, known_by, login, post_at, sealed_now
from tests.support.servers import RedisServer, free_port
from tests.support.waiting import eventually

run = partial(said_by, "settings")

FILE = """
lifetime = 3600

[limits.login]
limit = "50/day"
switch = "shadow"
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of settings; the secret is in the environment."""
    monkeypatch.setenv("RECONVERGE_SETTINGS_SECRET", SECRET)
    path = tmp_path / "fleet.toml"
    path.write_text(FILE)
    return path


def publish(file: Path, server: RedisServer, *options: object) -> Said:
    """Publish it for the namespace `shop`."""
    return run("publish", file, "--hub", server.url, "--namespace", "shop", *options)


def test_a_limit_that_no_node_has_reported_is_named(file: Path, redis_server: RedisServer) -> None:
    """It may be declared later, so the file is published; before any node reports a limit, nothing is known."""
    file.write_text(FILE.replace("limits.login", "limits.logn"))
    early = publish(file, redis_server)
    with Agent(redis_server.url, namespace="shop", sync_interval=0.02, exchange_timeout=5.0) as agent:
        agent.limit("login", "100/day").allow("ada")
        eventually(lambda: agent.stats().exchanges[0].cells > 0 and agent.ready, "a report")

        late = publish(file, redis_server)

    assert (0, "") == (early.status, early.stderr)
    assert 0 == late.status
    assert "the settings of logn have no effect until a node declares it" in late.stderr
    assert "did you mean 'login'?" in late.stderr


def show(server: RedisServer) -> Said:
    return run("show", "--hub", server.url, "--namespace", "shop")


def test_a_file_is_obeyed_by_a_running_agent(file: Path, redis_server: RedisServer) -> None:
    """And so is the next one, which has a higher version by itself."""
    with Agent(redis_server.url, namespace="shop", sync_interval=0.02, exchange_timeout=5.0) as agent:
        limiter = agent.limit("login", "100/day")
        first = publish(file, redis_server)
        eventually(lambda: limiter.limit.quota == 50, "the first file")
        assert (0, "shadow") == (first.status, limiter.switched)
        before = known_by(agent).version
        file.write_text("lifetime: 60\nlimits:\n  login:\n    limit: 30/day\n")
        second = publish(file.rename(file.with_suffix(".yaml")), redis_server)
        eventually(lambda: limiter.limit.quota == 30, "the second file")

    assert (0, "on") == (second.status, limiter.switched)
    assert before < known_by(agent).version
    assert SECRET not in first.all + second.all


@pytest.mark.parametrize("encrypted", [False, True], ids=["mqtt", "mqtts"])
def test_a_broker_is_as_good_as_a_server(
    file: Path, encrypted: bool, mosquitto: Mosquitto, guarded_mosquitto: GuardedMosquitto
) -> None:
    """Each command waits until the broker has said all that it has kept."""
    where = ("--hub", guarded_mosquitto.url() if encrypted else mosquitto.url, "--namespace", token_hex(4))
    before = run("show", *where)
    first, second = (run("publish", file, *where) for _ in range(2))
    shown = run("show", *where)

    assert "nothing is published" in before.stdout
    assert (0, 0, 0) == (first.status, second.status, shown.status)
    assert {"login": {"limit": "50/day", "switch": "shadow"}} == json.loads(shown.stdout)["limits"]
    assert str(json.loads(shown.stdout)["version"]) in second.stdout


def test_what_is_published_is_shown(file: Path, redis_server: RedisServer) -> None:
    """The command prints the document as JSON, with its version."""
    assert (0, "nothing is published for namespace shop\n") == (show(redis_server).status, show(redis_server).stdout)
    publish(file, redis_server, "--version", 5)
    shown = json.loads(show(redis_server).stdout)

    assert {"login": {"limit": "50/day", "switch": "shadow"}} == shown["limits"]
    assert (5, "shop", 3600) == (shown["version"], shown["namespace"], shown["expires"] - shown["issued"])


def test_a_version_that_nobody_would_obey_is_not_published(file: Path, redis_server: RedisServer) -> None:
    """It has to be above what is published; without one, it is."""
    publish(file, redis_server, "--version", 5_000_000_000_000)
    again = publish(file, redis_server, "--version", 5_000_000_000_000)

    assert 2 == again.status
    assert "is not above 5000000000000" in again.stderr
    assert "published version 5000000000001 for" in publish(file, redis_server).stdout


@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        (
            sealed_now(secret=OTHER, limits=login("1/day")),
            "give its publisher and all nodes the same secret",
        ),
        (sealed_now(namespace="other"), "for the namespace 'other'"),
        (b"\x1b[31mnoise", "does not begin with the header of settings"),
    ],
    ids=["forged", "foreign", "noise"],
)
def test_what_nobody_would_obey_is_shown_to_be_that(
    file: Path, redis_server: RedisServer, payload: bytes, problem: str
) -> None:
    """With status 1; and can be replaced, where that is said."""
    post_at(redis_server.url, payload)
    shown = show(redis_server)

    assert 1 == shown.status
    assert problem in shown.stderr
    assert "\x1b" not in shown.all
    assert 0 == publish(file, redis_server, "--force").status
    assert 0 == show(redis_server).status


@pytest.mark.parametrize("kind", ["redis", "mqtt"])
@pytest.mark.parametrize("force", [False, True], ids=["unforced", "forced"])
def test_a_wrong_secret_replaces_a_document_only_by_force(
    file: Path,
    kind: str,
    force: bool,
    redis_server: RedisServer,
    mosquitto: Mosquitto,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The command ends with an error that says what to do, and the fleet's document is the same as before."""
    url = redis_server.url if kind == "redis" else mosquitto.url
    where = ("--hub", url, "--namespace", token_hex(4))
    options = ("--force",) if force else ()
    first = run("publish", file, *where)
    before = run("show", *where)
    monkeypatch.setenv("RECONVERGE_SETTINGS_SECRET", OTHER)
    second = run("publish", file, *where, *options)
    monkeypatch.setenv("RECONVERGE_SETTINGS_SECRET", SECRET)
    after = run("show", *where)

    assert (0, 0) == (first.status, before.status)
    assert (0 if force else 2) == second.status
    assert force == ("published version" in second.stdout)
    assert force != ("was not changed" in second.stderr)
    assert force != (before.stdout == after.stdout)
    assert OTHER not in second.all


@pytest.mark.parametrize(
    "payload",
    [b"reconverge-settings-2 of a later release", b"x" * 100_000, sealed_now(9, namespace="other")],
    ids=["a later format", "too long", "of another namespace"],
)
def test_what_the_publisher_cannot_read_is_not_replaced(file: Path, redis_server: RedisServer, payload: bytes) -> None:
    """It may be valid for nodes of another release."""
    post_at(redis_server.url, payload)
    said = publish(file, redis_server)

    assert 2 == said.status
    assert "--force" in run("publish", "--help").stdout
    assert "replace it anyway with --force" in said.stderr


def test_a_new_secret_beside_the_old_one_replaces_what_the_old_one_signed(
    file: Path, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So secrets change without force."""
    first = publish(file, redis_server)
    monkeypatch.setenv("RECONVERGE_SETTINGS_SECRET", f"{OTHER} {SECRET}")
    second = publish(file, redis_server)

    assert (0, 0) == (first.status, second.status)


@pytest.mark.parametrize("kind", ["redis", "mqtt"])
async def test_a_program_with_a_wrong_secret_replaces_a_document_only_by_force(
    kind: str, redis_server: RedisServer, mosquitto: Mosquitto
) -> None:
    """The exception names the reason, as the command does."""
    url, namespace = redis_server.url if kind == "redis" else mosquitto.url, token_hex(4)
    now_s = SystemClock().wall_ns() // 10**9
    right, wrong = Secrets(SECRET), Secrets(OTHER)

    hub: Any = open_hub(url, HubSettings(namespace, 5.0))
    said: list[object] = []
    try:
        for version, secrets, force in ((1, right, False), (2, wrong, False), (2, right, False), (3, wrong, True)):
            orders = FleetSettings(namespace, version, issued=now_s, expires=now_s + 60)
            try:
                said.append((await publish_settings(hub, orders, secrets, force=force)).version)
            except UnverifiedDocument as error:
                said.append(error.reason)
    finally:
        await hub.close()

    assert [1, "forged", 2, 3] == said


@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        ("lifetime = 0\n", "fleet.toml, line 1: lifetime: must be the seconds for which nodes obey"),
        ("\nswitch = 'off'\n", "fleet.toml, line 1: lifetime: must be the seconds for which nodes obey"),
        ("lifetime = 60\ncolour = 'red'\n", "fleet.toml, line 2: colour: there is no such setting"),
        ("lifetime = 60\nswitch = 'maybe'\n", "fleet.toml, line 2: switch: must be 'on', 'shadow', 'off'"),
        ("lifetime = 60\nsync_interval = -1\n", "fleet.toml, line 2: sync_interval: "),
        ("lifetime = 60\n[limits.login]\nlimt = '1/day'\n", "fleet.toml, line 3: limits.login.limt: there is no"),
        ("lifetime = 60\n[limits.login]\nlimit = '1/dy'\n", "fleet.toml, line 3: limits.login.limit: limit '1/dy'"),
        ("lifetime = 60\nversion = 3\n", "fleet.toml, line 2: version: there is no such setting"),
        ("lifetime = ", "fleet.toml, line 1: is not TOML"),
    ],
)
def test_a_mistake_is_told_with_file_line_and_field(
    file: Path, redis_server: RedisServer, wrong: str, place: str
) -> None:
    """And nothing is published."""
    file.write_text(wrong)
    said = publish(file, redis_server)

    assert 2 == said.status
    assert said.stderr.startswith(place)
    assert "nothing is published" in show(redis_server).stdout


def test_the_secret_is_taken_from_the_environment_alone(
    file: Path, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no option for it, and without it nothing is published or shown."""
    monkeypatch.delenv("RECONVERGE_SETTINGS_SECRET")

    assert "RECONVERGE_SETTINGS_SECRET" in publish(file, redis_server).stderr
    assert "RECONVERGE_SETTINGS_SECRET" in show(redis_server).stderr
    monkeypatch.setenv("RECONVERGE_SETTINGS_SECRET", "tooshort")
    assert "tooshort" not in publish(file, redis_server).all
    assert "--secret" not in run("publish", "--help").stdout


def test_where_nothing_can_be_published_that_is_said(file: Path) -> None:
    """No hub, or none that answers; a password in the URL is not shown."""
    nowhere = run("publish", file, "--hub", "memory://")
    away = run("publish", file, "--hub", f"redis://ada:sesame@127.0.0.1:{free_port()}/0")

    assert (2, 2) == (nowhere.status, away.status)
    assert "no hub that nodes share" in nowhere.stderr
    assert "refused" in away.stderr
    assert "sesame" not in away.all
