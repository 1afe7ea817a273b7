"""What the texts of all clients' exceptions have in common, whatever the server speaks."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable
from typing import Final

FILE_TEXT_MAX: Final = 500
"""The longest text that is shown of an error that names a file, whose path may be long."""
_UNREACHED: Final = (errno.ECONNREFUSED, errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENOENT, errno.EACCES)
UNREACHED_TEXT: Final = re.compile(rf"\bErr(?:no|or) (?:-\d+|{'|'.join(map(str, _UNREACHED))})\b")
"""Negative numbers are those of names that have no address."""
NO_NAME_TEXT: Final = re.compile(r"\bErr(?:no|or) -(?:2|5)\b")
"""There is no such host, or it has no address: EAI_NONAME and EAI_NODATA."""


def shown(error: BaseException, secrets: Iterable[str]) -> str:
    """What it says, in one line, without any of `secrets`, which are looked for in their order."""
    text = str(error)
    for secret in secrets:
        text = text.replace(secret, "***")
    return "".join(letter if letter.isprintable() else " " for letter in text)
