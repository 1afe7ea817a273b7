"""The index of the contracts that a hub keeps: what it says, how it is signed, and why one is rejected."""

# It is signed as published settings are, by the same secrets and with the same code (`remote_settings/signed.py`), and
# its first word is another one, so that no signature of one is good for the other. It is no field of the published
# settings, because a node of the version before rejects a document that has a field it does not know, and would lose
# the settings that it does know (`docs/decisions/0120-keep-contracts-in-pages-behind-a-signed-index.md`).
#
# An index expires only for nodes that know none: a fleet whose contracts no operator has changed for a year must not
# be without them the day after. A node that starts rejects it then, and says so.

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from reconverge.contracts.store.pages import DIGEST_LENGTH, PAGES_MAX, Outline
from reconverge.errors import InvalidSetting, ReconvergeError, shown
from reconverge.remote_settings.signed import (
    MALFORMED,
    OLD,
    PAYLOAD_BYTES_MAX,
    VERSION_MAX,
    Rejection,
    Secrets,
    opened_table,
    seal_table,
    why_rejected,
)
from reconverge.settings import checked_namespace

MAGIC: Final = b"reconverge-contracts-1 "
INDEX_BYTES_MAX: Final = PAYLOAD_BYTES_MAX
HISTORY_MAX: Final = 100
"""So many versions are kept, the one in force included. Their digests take 7 KiB of the index."""
LIFETIME_MAX_S: Final = 366 * 86_400
"""For so long after it was signed, an index is believed by a node that starts, and its pages are kept."""
FIELDS: Final = ("namespace", "version", "issued", "expires", "plans", "customers", "history")
MINIMUM_VARIABLE: Final = "RECONVERGE_CONTRACTS_MIN_VERSION"
_DIGITS: Final = frozenset("0123456789abcdef")


@dataclass(frozen=True, slots=True)
class Index:
    """One version of the contracts of a namespace."""

    namespace: str
    """The namespace that it is for; nodes of others reject it."""
    version: int
    """One more than that of the version before."""
    issued: int
    """When it was signed, in seconds since 1970."""
    expires: int
    """From when on nodes that know no contracts reject it, likewise."""
    outline: Outline
    """The digests of its pages."""
    history: tuple[str, ...]
    """The digests of the pages that tell of changes, the newest first, which is the one that made this version."""


def seal_index(index: Index, secrets: Secrets) -> bytes:
    """The index as it is kept. Raises InvalidFleetSettings if it were longer than INDEX_BYTES_MAX."""
    said = {
        "namespace": index.namespace,
        "version": index.version,
        "issued": index.issued,
        "expires": index.expires,
        "plans": index.outline.plans,
        "customers": list(index.outline.customers),
        "history": list(index.history),
    }
    return seal_table(said, secrets, magic=MAGIC)


def opened_index(payload: object, secrets: Secrets) -> Index | Rejection:
    """The index if one of the secrets signed it, of any namespace, and whether or not it has expired."""
    said = opened_table(payload, secrets, magic=MAGIC)
    if isinstance(said, Rejection):
        return said
    try:
        return _index(said.table)
    except _Malformed as error:
        return Rejection(MALFORMED, str(error))


def minimum_as_said() -> int:
    """The least version that the environment says to believe, or to publish; 0 if it says none.

    Raises InvalidSetting if it is no version.
    """
    said = os.environ.get(MINIMUM_VARIABLE, "")
    if not said:
        return 0
    if not said.isascii() or not said.isdecimal() or int(said[:20]) > VERSION_MAX:
        raise InvalidSetting(MINIMUM_VARIABLE, said, "is no version; they are whole numbers, as in 58")
    return int(said)


class IndexVerifier:
    """Judges what one node reads. `minimum` is the lowest version that it believes, whatever it has known before.

    Raises InvalidSetting if `minimum` is no version.
    """

    def __init__(self, namespace: str, secrets: Secrets, *, minimum: int = 0) -> None:
        if not 0 <= minimum <= VERSION_MAX:
            raise InvalidSetting("minimum", minimum, f"is no version; they go from 0 to {VERSION_MAX}")
        self.namespace = namespace
        self.minimum = minimum
        self._secrets = secrets

    def verify(self, payload: bytes, *, now_s: float, known: int) -> Index | Rejection:
        """The index, if it is to be obeyed by a node that knows a version; `now_s` is the wall clock's time."""
        verdict = opened_index(payload, self._secrets)
        if isinstance(verdict, Rejection):
            return verdict
        rejection = why_rejected(verdict, self.namespace, now_s=now_s, known=known)
        if rejection is None and verdict.version < self.minimum:
            problem = f"has version {verdict.version}, and {self.minimum} is the least that this node believes"
            return Rejection(OLD, problem)
        return rejection or verdict


class _Malformed(Exception):  # of this file alone
    """The table is no index."""


def _index(said: object) -> Index:
    if not isinstance(said, dict) or sorted(said) != sorted(FIELDS):
        raise _Malformed(f"must be a table of {', '.join(FIELDS)}")
    table: Mapping[str, Any] = said
    try:
        checked_namespace(table["namespace"])
    except ReconvergeError as error:
        raise _Malformed(str(error)) from None
    for name in ("version", "issued", "expires"):
        if type(table[name]) is not int or not 1 <= table[name] <= VERSION_MAX:
            raise _Malformed(f"{name}: must be a whole number from 1 to {VERSION_MAX}, not {shown(table[name])}")
    if not 1 <= table["expires"] - table["issued"] <= LIFETIME_MAX_S:
        raise _Malformed(f"expires: must be 1 s to {LIFETIME_MAX_S} s after `issued`")
    (plans,) = _digests("plans", [table["plans"]], 1)
    customers = _digests("customers", table["customers"], PAGES_MAX)
    if len(customers) & (len(customers) - 1):
        raise _Malformed(f"customers: {len(customers)} pages are no power of two")
    return Index(
        namespace=table["namespace"],
        version=table["version"],
        issued=table["issued"],
        expires=table["expires"],
        outline=Outline(plans, customers),
        history=_digests("history", table["history"], HISTORY_MAX),
    )


def _digests(name: str, said: object, most: int) -> tuple[str, ...]:
    if not isinstance(said, list) or not 1 <= len(said) <= most:
        raise _Malformed(f"{name}: must be a list of 1 to {most} digests")
    digests: Sequence[object] = said
    for each in digests:
        if not isinstance(each, str) or len(each) != DIGEST_LENGTH or not _DIGITS.issuperset(each):
            raise _Malformed(f"{name}: {shown(each)} is no digest")
    return tuple(each for each in digests if isinstance(each, str))
