"""Reads the address of a broker and the login from a URL."""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from reconverge.clock import SECOND_NS
from reconverge.errors import InvalidSetting
from reconverge.hub.registry import redacted
from reconverge_sync.client.tls import tls_context
from reconverge_sync.client.urls import (
    TLS_OPTIONS,
    UNREADABLE,
    check_login,
    is_number,
    longest_first,
    read_query,
    tls_options,
)
from reconverge_sync.mqtt.election import TENURE_NS

PORTS: Final = {"mqtt": 1883, "mqtts": 8883}
PROTOCOLS: Final = ("3.1.1", "5")
OPTIONS: Final = ("protocol", "shards", "tenure")
SHARDS_MAX: Final = 64
TENURE_S: Final = (0.3, 60)


@dataclass(frozen=True, slots=True)
class Login:
    """A user's name and password; its repr shows neither of them."""

    user: str | None = field(repr=False)
    password: str | None = field(repr=False)

    @property
    def secrets(self) -> tuple[str, ...]:
        """The texts that no message may show: the password and the user's name, the longest first."""
        return longest_first(self.password, self.user)


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """The parts of a broker's URL. The repr contains no secrets."""

    host: str
    port: int
    login: Login
    protocol: str
    shards: int
    tenure_ns: int
    """The tenure in nanoseconds: how long after a claim was sent the leader may answer; see `mqtt/election.py`."""
    encrypted: bool
    tls: dict[str, Any]

    @classmethod
    def of(cls, url: str) -> BrokerAddress:
        """Returns the address in a URL. Raises InvalidSetting if the URL is invalid."""
        try:
            parts = urlsplit(url)
            check_login(parts)
            port = PORTS[parts.scheme] if parts.port is None else parts.port
            if port == 0:
                raise ValueError("the port 0 cannot be connected to")
        except ValueError:
            # No cause: its message may show a part of the password.
            raise InvalidSetting("hub", redacted(url), UNREADABLE) from None

        def wrong(problem: str) -> InvalidSetting:
            return InvalidSetting("hub", redacted(url), problem)

        if parts.path.strip("/") or parts.fragment:
            raise wrong("has a path after the port; remove it, as the namespace determines the topics")
        encrypted = parts.scheme == "mqtts"
        query = read_query(parts.query, (*OPTIONS, *(TLS_OPTIONS if encrypted else ())), wrong)
        protocol = query.pop("protocol", PROTOCOLS[0])
        if protocol not in PROTOCOLS:
            raise wrong(f"has a protocol that is none of {', '.join(PROTOCOLS)}; write one of these")
        shards = query.pop("shards", "1")
        if not (is_number(shards) and 1 <= int(shards) <= SHARDS_MAX):
            raise wrong(f"has shards that are no number from 1 to {SHARDS_MAX}; write one, such as shards=4")
        tenure = query.pop("tenure", str(TENURE_NS / SECOND_NS))
        if not (re.fullmatch(r"\d{1,3}(\.\d{1,3})?", tenure, re.ASCII) and TENURE_S[0] <= float(tenure) <= TENURE_S[1]):
            raise wrong(
                f"has a tenure that is no number of seconds from {TENURE_S[0]} to {TENURE_S[1]}; write tenure=3"
            )
        tls = tls_options(query, wrong) if encrypted else {}
        if parts.password and not parts.username:
            raise wrong("has a password without a user's name; name the user, too")
        login = Login(unquote(parts.username) if parts.username else None, unquote(parts.password or "") or None)
        return cls(
            parts.hostname or "localhost",
            port,
            login,
            protocol,
            int(shards),
            round(float(tenure) * SECOND_NS),
            encrypted,
            tls,
        )

    def tls_context(self) -> ssl.SSLContext | None:
        """Returns a TLS context, or None if the URL has no TLS. Reads files, so do not call it on an event loop.

        Raises UnusableFile.
        """
        if not self.encrypted:
            return None
        return tls_context(self.tls)
