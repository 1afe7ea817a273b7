"""The result of importing a file of another format: contracts, and remarks on the rest of the file."""

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
    """Contracts, and what an operator must know of them."""

    document: Document
    remarks: tuple[str, ...] = ()
    """Where the contracts differ from the file, leave something out, or expect something.

    Each begins with its place.
    """


def imported(source: str, table: Mapping[str, Any], remarks: list[str]) -> Imported:
    """The contracts that an import has written as a table. Raises InvalidConfiguration if they make no sense."""
    try:
        return Imported(checked(table), tuple(remarks))
    except InvalidContracts as error:
        problem = f"cannot be said in contracts: {field_at(error.path)}: {error.problem}"
        raise InvalidConfiguration(source, problem, line=1) from None


class Names:
    """Names of plans or of limits, one for each text, of any length and any characters."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def of(self, text: str) -> str:
        """The name for a text: the text itself if that can be a name and is none yet."""
        if text not in self._names:
            name = _UNFIT.sub("-", text)
            if name != text or len(name) > NAME_LENGTH_MAX or name in self._names.values():
                mark = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_HASH_BYTES).hexdigest()
                name = f"{name[: NAME_LENGTH_MAX - len(mark) - 1]}-{mark}"
            self._names[text] = name
        return self._names[text]
