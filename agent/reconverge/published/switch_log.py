"""Which author has turned which switch of a fleet: the last changes, signed, kept at the hub beside the settings."""

# Theory of operation.
#
# Published settings name no author, and cannot be made to: a node rejects a document with a field that it does not
# know, so nodes of an older version would not obey a kill switch that names its author. The log is therefore a text of
# its own, which no node reads. It lies where a hub keeps the pages of contracts, in a place that follows from the
# namespace, so every hub with pages has room for it, and a user of Redis needs no further right.
#
# A publisher reads the log, puts what it has changed before the rest, and puts it back. It does so after the settings
# are published, and whatever goes wrong then is logged and changes nothing of that: a switch must not depend on being
# logged. Of two publishers at one moment the later one may put its log in the place of the other's, as its settings
# stand in the place of the other's, too. A publisher of an older version, and one that names no author, adds nothing.
#
# The signature says that a holder of the secret wrote the log. It does not say that the author is true, as the holder
# may name any; and a client that can write to the hub can delete the log, or put an older one back.

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
"""A longer log is not read; the oldest lines go first."""
AUTHOR_LENGTH_MAX: Final = 200
"""As of an author of contracts."""
LIMIT_LENGTH_MAX: Final = 200
KEPT_S: Final = LIFETIME_MAX_S
"""The log is kept for so long after the last change."""
PATIENCE_S: Final = 2.0
"""For so long a publisher waits for the log, when its settings are published already."""


class Turned(NamedTuple):
    """One switch that was turned."""

    when: int
    """In seconds since 1970, by the publisher's clock."""
    by: str
    """The author, as the holder of the secret has said."""
    limit: str | None
    """Its name; None for the switch of all limits."""
    to: Word | None
    """None leaves it to each node."""


def turned_between(before: FleetSettings | None, after: FleetSettings, author: str) -> list[Turned]:
    """The switches that `after` has otherwise than what was in force, at most `LINES_MAX` of them."""
    former = {} if before is None or before.expires <= after.issued else _switches(before)
    since = _switches(after)
    by = _visible(author)
    changed = [name for name in sorted({*former, *since}) if former.get(name) != since.get(name)]
    return [Turned(after.issued, by, name or None, since.get(name)) for name in changed[:LINES_MAX]]


async def read_log(store: object, namespace: str, secrets: Secrets) -> list[Turned] | None:
    """The last switches that were turned, the newest first; None where the hub keeps no such log.

    What is not signed with one of the secrets, and what makes no sense, is passed over. Raises HubUnavailable.
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
    """Put lines before those that the log has already. Never raises; what goes wrong is logged."""
    if not lines or not isinstance(store, ContractStore):
        return
    try:
        await asyncio.wait_for(_record(store, namespace, secrets, lines), PATIENCE_S)
    except (HubUnavailable, TimeoutError) as error:
        logger.warning("reconverge: settings are published, but the log of switches does not tell of it: %s", error)


async def _record(store: ContractStore, namespace: str, secrets: Secrets, lines: Sequence[Turned]) -> None:
    known = await read_log(store, namespace, secrets) or []
    payload = _sealed(namespace, secrets, [*lines, *known][:LINES_MAX])
    await store.put_page(_place(namespace), payload, keep_s=KEPT_S)


def _sealed(namespace: str, secrets: Secrets, lines: Sequence[Turned]) -> bytes:
    """The log as it is kept, without the oldest lines if it would be too long."""
    most = len(lines)
    while True:
        table = {"namespace": namespace, "turned": [each._asdict() for each in lines[:most]]}
        payload = seal_table(table, secrets, magic=MAGIC)
        if len(payload) <= LOG_BYTES_MAX or most <= 1:
            return payload
        most -= 1 + most // 4


def _line(said: object) -> Turned | None:
    """A line of the log; None for what is none. Fields that a later version adds are passed over."""
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
    """The published switches by name; that of all limits has an empty one."""
    found: dict[str, Word] = {} if settings.switch is None else {"": settings.switch}
    for name, each in settings.limits.items():
        if each.switch is not None:
            found[name] = each.switch
    return found


def _visible(author: str) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in author[:AUTHOR_LENGTH_MAX])


def _place(namespace: str) -> str:
    """The digest under which the log lies; no page of contracts has it, as SHA-256 has no known collisions."""
    return sha256(MAGIC + namespace.encode()).hexdigest()
