"""The result of importing a file of another format: contracts, and remarks on what an operator must check."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

from reconverge.contracts.document import checked
from reconverge.contracts.model import Document, InvalidContracts, field_at
from reconverge.integrations.config.positions import InvalidConfiguration
from reconverge.limit.checks import NAME_LENGTH_MAX

_HASH_BYTES: Final = 4
_UNFIT: Final = re.compile(r"[^A-Za-z0-9_./-]")


@dataclass(frozen=True, slots=True)
class Imported:
    """Imported contracts, and remarks that an operator must read."""

    document: Document
    remarks: tuple[str, ...] = ()
    """Remarks on differences between the contracts and the file, on parts left out, and on steps that remain. Each
    remark begins with its place in the file."""


def imported(source: str, table: Mapping[str, Any], remarks: list[str]) -> Imported:
    """Returns the contracts that an import has built as the dict `table`. Raises InvalidConfiguration if invalid."""
    try:
        return Imported(checked(table), tuple(remarks))
    except InvalidContracts as error:
        problem = f"cannot be expressed in contracts: {field_at(error.path)}: {error.problem}"
        raise InvalidConfiguration(source, problem, line=1) from None


class Names:
    """Makes names of plans or limits for texts of any length and any characters, a different name for each text."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def of(self, text: str) -> str:
        """Returns the name for a text: the text itself if it is a valid name and free, else one with a hash."""
        if text not in self._names:
            name = _UNFIT.sub("-", text)
            if name != text or len(name) > NAME_LENGTH_MAX or name in self._names.values():
                mark = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_HASH_BYTES).hexdigest()
                name = f"{name[: NAME_LENGTH_MAX - len(mark) - 1]}-{mark}"
            self._names[text] = name
        return self._names[text]
