"""A fleet's log of changes of published switches and their authors; a hub stores it, signed, beside the settings."""

# Theory of operation.
#
# Published settings contain no author, and cannot: a node rejects a document with an unknown field, so nodes of an
# older version would not apply a kill switch that names its author. The log is therefore a separate text, which no node
# reads. It is stored where a hub stores the pages of contracts, in a place derived from the namespace. So every hub
# with pages has room for it, and a user of Redis needs no further right.
#
# A publisher reads the log, adds its own changes at the beginning, and writes the log back. It does so after it has
# published the settings, and a failure is only logged, because a switch must not depend on this log. If two publishers
# write at the same moment, the later log may replace the earlier one, just as the later settings replace the earlier
# ones. A publisher of an older version adds no lines, and neither does a publisher that names no author.
#
# The signature proves that a holder of the secret wrote the log. It does not prove the author, because the holder may
# give any name; and a client that can write to the hub can delete the log, or restore an older one.

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple

from reconverge.errors import HubUnavailable
from reconverge.hub.port import ContractStore
from reconverge.published.envelope import VERSION_MAX, Rejection, Secrets, opened_table, seal_table
from reconverge.published.settings import LIFETIME_MAX_S, WORDS, FleetSettings, Word

logger = logging.getLogger("reconverge")

MAGIC: Final = b"reconverge-switchlog-1 "
LINES_MAX: Final = 50
LOG_BYTES_MAX: Final = 32_768
"""The longest log that is read, in bytes; a writer drops the oldest lines of a longer log."""
AUTHOR_LENGTH_MAX: Final = 200
"""The longest name of an author, the same as in contracts."""
LIMIT_LENGTH_MAX: Final = 200
KEPT_S: Final = LIFETIME_MAX_S
"""For how many seconds after the last change the hub keeps the log."""
PATIENCE_S: Final = 2.0
"""For how many seconds a publisher tries to write the log, after it has published the settings."""


class Turned(NamedTuple):
    """One change of a published switch: its time, its author, the limit, and the new state."""

    when: int
    """When the switch was turned, in seconds since 1970 by the publisher's clock."""
    by: str
    """The author's name, as given by the holder of the secret."""
    limit: str | None
    """The limit's name; None for the switch of all limits."""
    to: Word | None
    """The new state; None if each node's own switch applies again."""


def turned_between(before: FleetSettings | None, after: FleetSettings, author: str) -> list[Turned]:
    """Returns the switches that differ between two settings, as lines for the log; at most `LINES_MAX` of them."""
    former = {} if before is None or before.expires <= after.issued else _switches(before)
    since = _switches(after)
    by = _visible(author)
    changed = [name for name in sorted({*former, *since}) if former.get(name) != since.get(name)]
    return [Turned(after.issued, by, name or None, since.get(name)) for name in changed[:LINES_MAX]]


async def read_log(store: object, namespace: str, secrets: Secrets) -> list[Turned] | None:
    """Returns the last changes of switches, the newest first; None if the hub cannot store the log.

    Invalid lines are left out; a log that is not signed counts as empty. Raises HubUnavailable.
    """
    if not isinstance(store, ContractStore):
        return None
    payload = await store.get_page(_place(namespace), bytes_max=LOG_BYTES_MAX)
    if payload is None or len(payload) > LOG_BYTES_MAX:
        return []
    found = opened_table(payload, secrets, magic=MAGIC)
    said = None if isinstance(found, Rejection) else found.table
    if not isinstance(said, Mapping) or said.get("namespace") != namespace:
        return []
    lines = said.get("turned")
    some: list[Any] = lines[:LINES_MAX] if isinstance(lines, list) else []
    return [line for line in map(_line, some) if line is not None]


async def record(store: object, namespace: str, secrets: Secrets, lines: Sequence[Turned]) -> None:
    """Adds `lines` before all others in the log. Never raises an error; a failure is logged."""
    if not lines or not isinstance(store, ContractStore):
        return
    try:
        await asyncio.wait_for(_record(store, namespace, secrets, lines), PATIENCE_S)
    except (HubUnavailable, TimeoutError) as error:
        logger.warning("reconverge: settings are published, but the log of switches could not be written: %s", error)


async def _record(store: ContractStore, namespace: str, secrets: Secrets, lines: Sequence[Turned]) -> None:
    known = await read_log(store, namespace, secrets) or []
    payload = _sealed(namespace, secrets, [*lines, *known][:LINES_MAX])
    await store.put_page(_place(namespace), payload, keep_s=KEPT_S)


def _sealed(namespace: str, secrets: Secrets, lines: Sequence[Turned]) -> bytes:
    """Returns the log as a signed payload, without the oldest lines if it would be too long."""
    most = len(lines)
    while True:
        table = {"namespace": namespace, "turned": [each._asdict() for each in lines[:most]]}
        payload = seal_table(table, secrets, magic=MAGIC)
        if len(payload) <= LOG_BYTES_MAX or most <= 1:
            return payload
        most -= 1 + most // 4


def _line(said: object) -> Turned | None:
    if not isinstance(said, Mapping):
        return None
    when, by, limit, to = (said.get(name) for name in Turned._fields)
    if type(when) is not int or not 1 <= when <= VERSION_MAX or not isinstance(by, str):
        return None
    if limit is not None and not (isinstance(limit, str) and len(limit) <= LIMIT_LENGTH_MAX):
        return None
    if to is not None and not (isinstance(to, str) and to in WORDS):
        return None
    return Turned(when, _visible(by), limit, None if to is None else WORDS[to])


def _switches(settings: FleetSettings) -> dict[str, Word]:
    """Returns the published switches by name; the switch of all limits has an empty name."""
    found: dict[str, Word] = {} if settings.switch is None else {"": settings.switch}
    for name, each in settings.limits.items():
        if each.switch is not None:
            found[name] = each.switch
    return found


def _visible(author: str) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in author[:AUTHOR_LENGTH_MAX])


def _place(namespace: str) -> str:
    """Returns the digest under which the log is stored.

    No page of contracts has the same digest, as SHA-256 has no known collisions.
    """
    return sha256(MAGIC + namespace.encode()).hexdigest()
