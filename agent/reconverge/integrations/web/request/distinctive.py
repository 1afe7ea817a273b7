"""Checks names of header fields whose values are to distinguish clients."""

from __future__ import annotations

import logging
from typing import Final

from reconverge.errors import InvalidSetting
from reconverge.runtime.log_throttle import LoggedOnce

logger = logging.getLogger("reconverge")
_logged = LoggedOnce()

OF_ONE_REQUEST: Final = frozenset(
    [
        "cf-ray",
        "request-id",
        "traceparent",
        "tracestate",
        "x-amzn-requestid",
        "x-amzn-trace-id",
        "x-b3-spanid",
        "x-b3-traceid",
        "x-cloud-trace-context",
        "x-correlation-id",
        "x-request-id",
        "x-request-start",
        "x-trace-id",
    ]
)
"""Header fields by which a request is traced: each request has a value of its own."""
OF_PROXIES: Final = frozenset(("forwarded", "x-forwarded-for"))
"""Header fields to which each proxy adds an address."""


def check_distinctive(name: str) -> None:
    """Raises InvalidSetting for a header field that distinguishes no clients; logs one that proxies may drop."""
    if name.lower() in OF_ONE_REQUEST:
        problem = "has another value in each request, so no key would ever be refused; name a header that tells clients"
        raise InvalidSetting("name", name, f"{problem} apart, such as 'x-api-key'")
    if name.lower() in OF_PROXIES:
        problem = "begins with what the client has written, so a client could choose its key; write by_ip"
        raise InvalidSetting("name", name, f"{problem}, and name your proxies: trusted_proxies=['10.0.0.0/8']")
    if "_" in name and _logged.is_new(name):
        meant = name.replace("_", "-")
        logger.warning(
            "reconverge: by_header(%r) has an underscore, with which most proxies drop a header, and then the key is"
            " missing; write by_header(%r) if that is what clients send",
            name,
            meant,
        )
