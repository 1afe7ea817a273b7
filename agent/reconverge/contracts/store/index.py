"""The index of the contracts at a hub, which lists their pages: its fields, and its signed form."""

# The index is signed by the same secrets as published settings (`published/envelope.py`). It is no field of these
# settings, because a node of an older version rejects a document with a field that it does not know, and would lose the
# settings that it knows (`docs/decisions/0120-keep-contracts-in-pages-behind-a-signed-index.md`).
#
# An index expires only for nodes that have no contracts yet: a fleet whose contracts no operator has changed for a year
# must not be without them the day after. A node that starts with an expired index rejects it, and logs that.

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from reconverge.contracts.store.pages import DIGEST_LENGTH, PAGES_MAX, Outline
from reconverge.errors import InvalidSetting, shown
from reconverge.published.envelope import (
    PAYLOAD_BYTES_MAX,
    STAMP,
    VERSION_MAX,
    Format,
    InvalidDocument,
    Secrets,
    check_stamp,
    seal_table,
)

MAGIC: Final = b"reconverge-contracts-1 "
INDEX_BYTES_MAX: Final = PAYLOAD_BYTES_MAX
HISTORY_MAX: Final = 100
"""The number of versions that are kept, the one in force included. Their digests take 7 KiB of the index."""
LIFETIME_MAX_S: Final = 366 * 86_400
"""The seconds after its signing for which a starting node accepts an index, and the hub keeps its pages."""
FIELDS: Final = (*STAMP, "plans", "customers", "history")
MINIMUM_VARIABLE: Final = "RECONVERGE_CONTRACTS_MIN_VERSION"
_DIGITS: Final = frozenset("0123456789abcdef")


@dataclass(frozen=True, slots=True)
class Index:
    """The index of one version of a namespace's contracts: its number, its times, and the digests of its pages."""

    namespace: str
    """The namespace of the contracts; nodes of other namespaces reject the index."""
    version: int
    """The number of the version, one more than that of the version before."""
    issued: int
    """The time of signing, in seconds since 1970."""
    expires: int
    """The time from which nodes without contracts reject the index, in seconds since 1970."""
    outline: Outline
    """The digests of the version's pages."""
    history: tuple[str, ...]
    """The digests of the pages that describe changes, the newest first; that is the change which made this version."""


def seal_index(index: Index, secrets: Secrets) -> bytes:
    """Signs the index. Returns its bytes for the hub. Raises InvalidDocument if they exceed INDEX_BYTES_MAX."""
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


def minimum_as_said() -> int:
    """Returns the least version to accept or publish, from RECONVERGE_CONTRACTS_MIN_VERSION; 0 if that is not set.

    Raises InvalidSetting if the variable's value is no version number.
    """
    said = os.environ.get(MINIMUM_VARIABLE, "")
    if not said:
        return 0
    if not said.isascii() or not said.isdecimal() or int(said[:20]) > VERSION_MAX:
        raise InvalidSetting(MINIMUM_VARIABLE, said, "is no version; set it to a whole number, such as 58")
    return int(said)


def _index(said: object) -> Index:
    if not isinstance(said, dict) or sorted(said) != sorted(FIELDS):
        raise InvalidDocument(f"must be a table of {', '.join(FIELDS)}, not {shown(said)}")
    table: Mapping[str, Any] = said
    check_stamp(table, lifetime_max_s=LIFETIME_MAX_S)
    (plans,) = _digests("plans", [table["plans"]], 1)
    customers = _digests("customers", table["customers"], PAGES_MAX)
    if len(customers) & (len(customers) - 1):
        raise InvalidDocument(
            f"has {len(customers)} pages, but their number must be a power of two; publish the contracts again",
            "customers",
        )
    return Index(
        namespace=table["namespace"],
        version=table["version"],
        issued=table["issued"],
        expires=table["expires"],
        outline=Outline(plans, customers),
        history=_digests("history", table["history"], HISTORY_MAX),
    )


INDEX: Final = Format(MAGIC, _index)


def _digests(name: str, said: object, most: int) -> tuple[str, ...]:
    if not isinstance(said, list) or not 1 <= len(said) <= most:
        raise InvalidDocument(
            f"must be a list of 1 to {most} digests of pages, not {shown(said)}; publish the contracts again", name
        )
    digests: Sequence[object] = said
    for each in digests:
        if not isinstance(each, str) or len(each) != DIGEST_LENGTH or not _DIGITS.issuperset(each):
            raise InvalidDocument(
                f"{shown(each)} is no digest of {DIGEST_LENGTH} hexadecimal digits; publish the contracts again", name
            )
    return tuple(each for each in digests if isinstance(each, str))
