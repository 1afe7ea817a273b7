"""Reads the parts of a hub's URL that all servers share, and makes error texts without secrets."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterable
from typing import Any, Final
from urllib.parse import SplitResult, parse_qsl

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
    """Returns the options in a URL's query by name. Raises `refuse(problem)` if one is unknown, empty or occurs twice.

    `refuse` makes an exception from the text of a problem. No unknown option is ignored: it may be a misspelt option on
    which the security of a connection depends.
    """
    names = sorted(known)
    options: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in names:
            known = f"known: {', '.join(names)}" if names else "it has none"
            if name.startswith("ssl_"):
                known = f"{known}; options of TLS belong to rediss:// and mqtts://"
            raise refuse(f"{UNKNOWN_OPTION}: {ascii(name)[1:-1][:SHOWN_MAX]}; {known}")
        if not value:
            raise refuse(f"has no value for {name}; write {name}=..., or leave it out")
        if name in options:
            raise refuse(f"has {name} twice; leave one of them out")
        options[name] = value
    return options


def read_switch(name: str, value: str, refuse: Callable[[str], InvalidSetting]) -> bool:
    """Returns True if the option `name` has a value for on, such as "yes", False for one for off; case does not matter.

    For any other word, raises the exception that `refuse` makes from the text of the problem.
    """
    if value.lower() not in SWITCHES:
        raise refuse(f"has an {name} that is none of {', '.join(SWITCHES)}; write one of these")
    return SWITCHES[value.lower()]


def check_login(parts: SplitResult) -> None:
    """Raises ValueError if an unescaped / ? or # in the login has made a part of it the path, query or fragment."""
    if "@" in parts.path or "@" in parts.fragment or "@" in parts.query.partition("=")[0]:
        raise ValueError("there is an @ after the host")


def is_number(text: str) -> bool:
    """Returns whether a text is a whole number in plain digits, and not too long to be a setting."""
    return text.isascii() and text.isdecimal() and len(text) <= NUMBER_DIGITS_MAX


def tls_options(query: dict[str, str], refuse: Callable[[str], InvalidSetting]) -> dict[str, Any]:
    """Removes the TLS options from `query` and returns them, always with `ssl_cert_reqs` and `ssl_check_hostname`."""
    options: dict[str, Any] = {name: query.pop(name) for name in list(query) if name in TLS_OPTIONS}
    required = options.setdefault("ssl_cert_reqs", "required")
    if required not in TLS_REQUIREMENTS:
        raise refuse(f"has an ssl_cert_reqs that is none of {', '.join(TLS_REQUIREMENTS)}; write one of these")
    said = options.get("ssl_check_hostname")
    checked = required != "none" if said is None else read_switch("ssl_check_hostname", said, refuse)
    if checked and required == "none":
        raise refuse("has an ssl_check_hostname that has no effect with ssl_cert_reqs=none; leave one of them out")
    options["ssl_check_hostname"] = checked
    return options


def longest_first(*secrets: str | None) -> tuple[str, ...]:
    """Returns the secrets that are not empty, the longest first, because a longer one may contain a shorter one."""
    return tuple(sorted(filter(None, secrets), key=len, reverse=True))


FILE_TEXT_MAX: Final = 500
"""The most characters of an error's text that are shown if the error names a file, whose path may be long."""
_UNREACHED: Final = (errno.ECONNREFUSED, errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ENOENT, errno.EACCES)
UNREACHED_TEXT: Final = re.compile(rf"\bErr(?:no|or) (?:-\d+|{'|'.join(map(str, _UNREACHED))})\b")
"""Matches the number of an error for a server that cannot be reached; negative numbers are failed name look-ups."""
NO_NAME_TEXT: Final = re.compile(r"\bErr(?:no|or) -(?:2|5)\b")
"""Matches the number of an error for a host that does not exist or has no address: EAI_NONAME and EAI_NODATA."""


def shown(error: BaseException, secrets: Iterable[str]) -> str:
    """Returns the text of `error` in one line, in which *** replaces each of `secrets`, one after the other."""
    text = str(error)
    for secret in secrets:
        text = text.replace(secret, "***")
    return "".join(letter if letter.isprintable() else " " for letter in text)
