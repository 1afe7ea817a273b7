"""The common part of the URLs and the error texts of all servers."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterable
from typing import Any, Final
from urllib.parse import parse_qsl

from reconverge.errors import SHOWN_MAX, InvalidSetting
from reconverge.hub.registry import UNKNOWN_OPTION

UNREADABLE: Final = (
    "cannot be read: a port is a number from 1 to 65535, "
    "and in a password / ? # [ ] @ are written %2F %3F %23 %5B %5D %40"
)
TLS_OPTIONS: Final = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_check_hostname", "ssl_cert_reqs")
TLS_REQUIREMENTS: Final = ("none", "optional", "required")


SWITCHES: Final = {
    **dict.fromkeys(("true", "yes", "on", "1"), True),
    **dict.fromkeys(("false", "no", "off", "0"), False),
}
NUMBER_DIGITS_MAX: Final = 9


def read_query(query: str, known: Iterable[str], refuse: Callable[[str], InvalidSetting]) -> dict[str, str]:
    """The options of a URL by name: each is known, has a value, and stands there once. Raises what `refuse` makes.

    Nothing is passed over: a word that is mistyped may be the one that the security of a connection depends on.
    """
    names = sorted(known)
    options: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in names:
            known = f"known: {', '.join(names)}" if names else "it has none"
            raise refuse(f"{UNKNOWN_OPTION}: {ascii(name)[1:-1][:SHOWN_MAX]}; {known}")
        if not value:
            raise refuse(f"has no value for {name}; write {name}=..., or leave it out")
        if name in options:
            raise refuse(f"has {name} twice; leave one of them out")
        options[name] = value
    return options


def read_switch(name: str, value: str, refuse: Callable[[str], InvalidSetting]) -> bool:
    """Whether an option is on: in one of the words that are known, in any case. Raises what `refuse` makes."""
    if value.lower() not in SWITCHES:
        raise refuse(f"has an {name} that is none of {', '.join(SWITCHES)}")
    return SWITCHES[value.lower()]


def is_number(text: str) -> bool:
    """Whether that is a whole number of a sensible length, in plain digits."""
    return text.isascii() and text.isdecimal() and len(text) <= NUMBER_DIGITS_MAX


def tls_options(query: dict[str, str], refuse: Callable[[str], InvalidSetting]) -> dict[str, Any]:
    """How to encrypt, taken out of the query; whether to check certificates, and the names in them, is always said."""
    options: dict[str, Any] = {name: query.pop(name) for name in list(query) if name in TLS_OPTIONS}
    required = options.setdefault("ssl_cert_reqs", "required")
    if required not in TLS_REQUIREMENTS:
        raise refuse(f"has an ssl_cert_reqs that is none of {', '.join(TLS_REQUIREMENTS)}")
    said = options.get("ssl_check_hostname")
    checked = required != "none" if said is None else read_switch("ssl_check_hostname", said, refuse)
    if checked and required == "none":
        raise refuse("has an ssl_check_hostname that has no effect with ssl_cert_reqs=none; leave one of them out")
    options["ssl_check_hostname"] = checked
    return options


def longest_first(*secrets: str | None) -> tuple[str, ...]:
    """Those that there are, in the order in which to look for them: one may be part of another."""
    return tuple(sorted(filter(None, secrets), key=len, reverse=True))


FILE_TEXT_MAX: Final = 500
"""The longest text that is shown of an error that names a file, whose path may be long."""
_UNREACHED: Final = (errno.ECONNREFUSED, errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENOENT, errno.EACCES)
UNREACHED_TEXT: Final = re.compile(rf"\bErr(?:no|or) (?:-\d+|{'|'.join(map(str, _UNREACHED))})\b")
"""Negative numbers are those of names that have no address."""
NO_NAME_TEXT: Final = re.compile(r"\bErr(?:no|or) -(?:2|5)\b")
"""There is no such host, or it has no address: EAI_NONAME and EAI_NODATA."""


def shown(error: BaseException, secrets: Iterable[str]) -> str:
    """Returns the error's text, in one line, without any of `secrets`, which are looked for in their order."""
    text = str(error)
    for secret in secrets:
        text = text.replace(secret, "***")
    return "".join(letter if letter.isprintable() else " " for letter in text)
