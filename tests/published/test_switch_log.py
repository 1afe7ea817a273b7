"""Goal: it is known at the hub by which author a switch was turned, and no switch depends on that.

Method: publishers at a hub in memory and at a real Redis; damaged, forged and foreign logs; hubs that fail.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Any, NoReturn

import pytest

from reconverge import HubUnavailable
from reconverge.hub.port import ContractStore
from reconverge.hub.registry import HubSettings
from reconverge.published import switch_log
from reconverge.published.envelope import PAYLOAD_BYTES_MAX, Secrets, opened_table, seal_table
from reconverge.published.publisher import publish, turned
from reconverge.published.settings import MAGIC as SETTINGS_MAGIC
from reconverge.published.settings import SETTINGS_FIELDS, FleetSettings, LimitOverride
from reconverge.published.switch_log import (
    AUTHOR_LENGTH_MAX,
    LINES_MAX,
    LOG_BYTES_MAX,
    MAGIC,
    Turned,
    read_log,
    turned_between,
)
from reconverge_sync.memory import MemoryHub
from reconverge_sync.redis.hub import RedisHub
from tests.support.published import NOON, OTHER, SECRET, login, orders
from tests.support.servers import RedisServer

SECRETS = Secrets(SECRET)
OFF = orders(1, switch="off")


def send(hub: Any, settings: FleetSettings, author: str = "grace", *, secrets: Secrets = SECRETS) -> FleetSettings:
    """Publish settings under the name of an author."""
    return asyncio.run(publish(hub, settings, secrets, author=author))


def log(hub: object, namespace: str = "shop", *, secrets: Secrets = SECRETS) -> list[Turned] | None:
    return asyncio.run(read_log(hub, namespace, secrets))


def put(hub: ContractStore, payload: bytes, namespace: str = "shop") -> None:
    """Puts a payload where the log of a namespace lies."""
    asyncio.run(hub.put_page(switch_log._place(namespace), payload, keep_s=60))


@pytest.fixture
def hub() -> MemoryHub:
    """A hub that keeps pages."""
    return MemoryHub()


def test_the_log_tells_which_author_turned_what_and_when(hub: MemoryHub) -> None:
    """The newest first, of all limits and of one; it is a null that leaves it to each node."""
    send(hub, OFF)
    back = replace(orders(2, issued=NOON + 60), limits=login(switch="shadow"))
    send(hub, back, "ada")

    assert [
        Turned(NOON + 60, "ada", None, None),
        Turned(NOON + 60, "ada", "login", "shadow"),
        Turned(NOON, "grace", None, "off"),
    ] == log(hub)


async def test_the_log_of_a_redis_is_read_by_another_connection(redis_server: RedisServer) -> None:
    """A console on another machine has one."""
    redis_server.command("FLUSHALL")

    one, other = (RedisHub(redis_server.url, HubSettings("shop", 5.0)) for _ in range(2))
    await publish(one, OFF, SECRETS, author="grace")
    await publish(one, replace(OFF, version=2, switch="on"), SECRETS, author="ada")
    found = await read_log(other, "shop", SECRETS)
    await one.close()
    await other.close()

    assert [Turned(NOON, "ada", None, "on"), Turned(NOON, "grace", None, "off")] == found


def test_what_is_published_says_nothing_of_an_author(hub: MemoryHub) -> None:
    """A node of an older version rejects a document with a field that it does not know."""
    send(hub, OFF)
    payload = asyncio.run(hub.read(bytes_max=PAYLOAD_BYTES_MAX))
    found: Any = opened_table(payload, SECRETS, magic=SETTINGS_MAGIC)

    assert {"namespace", "version", "issued", "expires", "switch", "limits"} == set(found.table)
    assert set(found.table) <= set(SETTINGS_FIELDS)
    assert b"grace" not in (payload or b"")


def test_only_switches_that_are_otherwise_than_before_are_told_of(hub: MemoryHub) -> None:
    """A publication that has expired is no longer in force; a quota is no switch."""
    limits = {"login": LimitOverride("5/day"), "mail": LimitOverride(switch="off")}
    before = orders(1, switch="off", limits=limits)
    same = replace(before, version=2, limits=limits | {"login": LimitOverride("9/day")})
    late = replace(same, issued=before.expires, expires=before.expires + 60)

    assert [] == turned_between(before, same, "grace")
    assert [None, "mail"] == [each.limit for each in turned_between(before, replace(orders(2), limits={}), "grace")]
    assert [None, "mail"] == [each.limit for each in turned_between(before, late, "grace")]


def test_a_publisher_without_a_name_adds_nothing(hub: MemoryHub) -> None:
    """Nor does one of an older version; what was in the log stays."""
    send(hub, OFF)
    send(hub, replace(OFF, version=2, switch="on"), "")

    assert [Turned(NOON, "grace", None, "off")] == log(hub)


def test_the_log_has_a_bound_in_lines_and_in_bytes(hub: MemoryHub) -> None:
    """The oldest lines go first, also where authors and limits have the longest names that there are."""
    names = [f"{number}{'x' * 60}" for number in range(2 * LINES_MAX)]
    settings = orders(1)
    for version, name in enumerate(names, 1):
        settings = replace(turned(settings, "shadow", [name]), version=version)
        send(hub, settings, "\U0001f600" * 1000)
    found = log(hub)
    payload = asyncio.run(hub.get_page(switch_log._place("shop"), bytes_max=2 * LOG_BYTES_MAX))

    assert found
    assert payload
    assert names[-1] == found[0].limit
    assert 1 < len(found) <= LINES_MAX
    assert [each.limit for each in found] == names[::-1][: len(found)]
    assert len(payload) <= LOG_BYTES_MAX
    assert AUTHOR_LENGTH_MAX == len(found[0].by)


def test_one_document_that_turns_a_thousand_switches_is_told_of_in_part(hub: MemoryHub) -> None:
    """By as many lines as the log has."""
    send(hub, orders(1, limits={f"limit-{number}": LimitOverride(switch="off") for number in range(500)}))

    assert LINES_MAX == len(log(hub) or [])


def test_an_author_is_text_that_can_be_shown(hub: MemoryHub) -> None:
    """Control characters would move the cursor of a terminal, or make two lines of one."""
    send(hub, OFF, "gra\x1b[31mce\nroot\u202e")

    assert [Turned(NOON, "gra [31mce root ", None, "off")] == log(hub)


TABLE: dict[str, Any] = {"namespace": "shop", "turned": [Turned(NOON, "eve", None, "off")._asdict()]}
GOOD = seal_table(TABLE, SECRETS, magic=MAGIC)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"nonsense",
        GOOD[:-1],
        GOOD.replace(b"eve", b"ada"),
        GOOD + b" " * LOG_BYTES_MAX,
        seal_table(TABLE, Secrets(OTHER), magic=MAGIC),
        seal_table(TABLE, SECRETS, magic=SETTINGS_MAGIC),
        seal_table(TABLE, SECRETS, magic=SETTINGS_MAGIC).replace(SETTINGS_MAGIC, MAGIC),
        seal_table(TABLE | {"namespace": "other"}, SECRETS, magic=MAGIC),
        seal_table({"turned": TABLE["turned"]}, SECRETS, magic=MAGIC),
        seal_table(TABLE | {"turned": "off"}, SECRETS, magic=MAGIC),
    ],
)
def test_what_is_not_the_log_of_this_fleet_is_an_empty_one(hub: MemoryHub, payload: bytes) -> None:
    """Forged, cut, too long, of another format or namespace; the next switch begins it anew."""
    put(hub, payload)
    before = log(hub)
    send(hub, OFF)

    assert [] == before
    assert [Turned(NOON, "grace", None, "off")] == log(hub)


def test_lines_that_make_no_sense_are_passed_over_and_fields_of_later_versions_too(hub: MemoryHub) -> None:
    """A holder of the secret may write anything, and a later version more."""
    good = Turned(NOON, "eve", "login", "shadow")._asdict()
    wrong: list[Any] = [
        7,
        {},
        good | {"when": True},
        good | {"when": -1},
        good | {"when": 10**30},
        good | {"by": 7},
        good | {"limit": ["login"]},
        good | {"limit": "x" * 1000},
        good | {"to": "sideways"},
        good | {"to": ["off"]},
    ]
    lines = [*wrong, good | {"reason": "an incident", "by": "eve\x00"}]
    put(hub, seal_table({"namespace": "shop", "turned": lines, "more": 1}, SECRETS, magic=MAGIC))

    assert [Turned(NOON, "eve ", "login", "shadow")] == log(hub)


class FailingPages(MemoryHub):
    """A hub that publishes settings, and fails with pages."""

    async def put_page(self, digest: str, payload: bytes, *, keep_s: float) -> NoReturn:
        """Never works."""
        raise HubUnavailable("full", "no room", applied=False)


class HangingPages(MemoryHub):
    """A hub that publishes settings, and never answers about pages."""

    async def get_page(self, digest: str, *, bytes_max: int) -> NoReturn:
        """Never answers."""
        await asyncio.Event().wait()
        raise AssertionError


@pytest.mark.parametrize("broken", [FailingPages, HangingPages])
def test_settings_are_published_although_the_log_cannot_be_kept(
    broken: type[MemoryHub], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """That is logged; a switch does not depend on it."""
    monkeypatch.setattr(switch_log, "PATIENCE_S", 0.05)
    hub = broken()
    with caplog.at_level(logging.WARNING):
        send(hub, OFF)
    found: Any = opened_table(asyncio.run(hub.read(bytes_max=PAYLOAD_BYTES_MAX)), SECRETS, magic=SETTINGS_MAGIC)

    assert "off" == found.table["switch"]
    assert "the log of switches could not be written" in caplog.text


def test_a_hub_without_pages_has_no_log() -> None:
    """Which is another thing than an empty one."""
    assert None is log(object())


def test_the_log_of_one_secret_is_read_with_both_while_secrets_change(hub: MemoryHub) -> None:
    """Settings are read so, too."""
    send(hub, OFF)
    both = Secrets(f"{OTHER} {SECRET}")
    send(hub, replace(OFF, version=2, switch="on"), "ada", secrets=both)

    assert ["ada", "grace"] == [each.by for each in log(hub, secrets=Secrets(OTHER)) or []]
