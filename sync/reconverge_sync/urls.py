"""What the URLs of all servers have in common, whatever these speak."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from reconverge.errors import InvalidSetting

UNREADABLE: Final = (
    "cannot be read: a port is a number from 1 to 65535, "
    "and in a password / ? # [ ] @ are written %2F %3F %23 %5B %5D %40"
)
TLS_OPTIONS: Final = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_check_hostname", "ssl_cert_reqs")
TLS_REQUIREMENTS: Final = ("none", "optional", "required")


def tls_options(query: dict[str, str], refuse: Callable[[str], InvalidSetting]) -> dict[str, Any]:
    """How to encrypt, taken out of the query; whether to check certificates, and the names in them, is always said."""
    options: dict[str, Any] = {name: query.pop(name) for name in list(query) if name in TLS_OPTIONS}
    required = options.setdefault("ssl_cert_reqs", "required")
    if required not in TLS_REQUIREMENTS:
        raise refuse(f"has an ssl_cert_reqs that is none of {', '.join(TLS_REQUIREMENTS)}")
    checked = options.get("ssl_check_hostname", str(required != "none")).lower()
    options["ssl_check_hostname"] = checked in ("1", "true", "yes") and required != "none"
    return options


def longest_first(*secrets: str | None) -> tuple[str, ...]:
    """Those that there are, in the order in which to look for them: one may be part of another."""
    return tuple(sorted(filter(None, secrets), key=len, reverse=True))
