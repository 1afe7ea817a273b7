"""The command `reconverge contracts link`: makes the signed link by which a customer sees its own limits."""

from __future__ import annotations

import json
import os
import re
from datetime import UTC, datetime
from typing import Annotated, Final
from urllib.parse import urlsplit

import typer

from reconverge.cli.contracts.at_hub import IdentityArgument
from reconverge.cli.shared.options import JsonOption
from reconverge.clock import SECOND_NS, SystemClock
from reconverge.errors import InvalidSetting, asked
from reconverge.integrations.customer_links import PAGE, VARIABLE, customer_token
from reconverge.limit.grammar import UNITS_S
from reconverge.published.envelope import Secrets

LIFETIME: Final = "7 days"
LIFETIME_MAX_S: Final = 366 * 86_400
"""The longest lifetime of a link. A single link cannot be revoked, so a longer lifetime is probably a mistake."""
_LIFETIME: Final = re.compile(r"(?P<number>[0-9]{1,10}) *(?P<unit>[A-Za-z]*)", re.ASCII)
_BLANKS: Final = re.compile(r"\s")


def link(
    identity: IdentityArgument,
    url: Annotated[
        str,
        typer.Option(help="Where customers reach the console, as https://shop.example/console.", metavar="URL"),
    ],
    lifetime: Annotated[
        str, typer.Option(help="How long it opens: 30m, 12h, '7 days', or a number of seconds.", metavar="TIME")
    ] = LIFETIME,
    as_json: JsonOption = False,
) -> None:
    """Print a link by which a customer sees its own limits, and nothing else, for a while.

    The link is signed with the first of the secrets in RECONVERGE_CUSTOMER_SECRET, which the console has to have, too.
    The command uses no hub: if no contract names the identity, the link shows the limits of unknown customers. All
    holders of the link see what it shows, and a single link cannot be revoked.
    """
    secret = _secret_as_said()
    lifetime_s = _seconds("--lifetime", lifetime)
    address = _address("--url", url)
    expires = SystemClock.wall_ns() // SECOND_NS + lifetime_s
    made = f"{address}{PAGE}?link={customer_token(secret, identity, expires)}"
    if as_json:
        typer.echo(json.dumps({"link": made, "identity": identity, "expires": expires}, indent=2))
        return
    typer.echo(made)
    typer.echo(f"reconverge: it opens until {datetime.fromtimestamp(expires, tz=UTC):%Y-%m-%d %H:%M:%S} UTC", err=True)


def _secret_as_said() -> str:
    """Returns the secret for links from the environment; an argument would show in the list of processes.

    Raises InvalidSetting.
    """
    secret = os.environ.get(VARIABLE)
    if not secret:
        problem = "is not set; put the console's secret for links there, for instance: openssl rand -hex 32"
        raise InvalidSetting(VARIABLE, "", problem)
    Secrets(secret, name=VARIABLE)
    return secret


def _seconds(name: str, text: str) -> int:
    """Returns for how long a link is valid, in whole seconds. Raises InvalidSetting."""
    found = _LIFETIME.fullmatch(text.strip())
    if found is None:
        raise InvalidSetting(name, text, "is not a time like 30m, 12h, '7 days' or a number of seconds")
    unit = found["unit"].lower()
    if unit and unit not in UNITS_S:
        advice = (
            f"has the unknown unit {found['unit']!r}; use s, m, h, d, w, mo, y or their names{asked(unit, UNITS_S)}"
        )
        raise InvalidSetting(name, text, advice)
    seconds = int(found["number"]) * (UNITS_S[unit] if unit else 1)
    if not 1 <= seconds <= LIFETIME_MAX_S:
        problem = f"must be from 1 second to {LIFETIME_MAX_S // 86_400} days: a link cannot be taken back by itself"
        raise InvalidSetting(name, text, problem)
    return int(seconds)


def _address(name: str, url: str) -> str:
    """Returns the address of a console, without a slash at the end. Raises InvalidSetting.

    The address of the console's customer page is accepted, too.
    """
    try:
        parts = urlsplit(url)
        host, user = parts.hostname, parts.username
        _ = parts.port
    except ValueError:
        parts, host, user = urlsplit(""), None, None
    if parts.scheme not in ("http", "https") or not host or _BLANKS.search(url):
        problem = (
            "is no address at which a customer could reach the console; write for instance https://shop.example/console"
        )
        raise InvalidSetting(name, url, problem)
    if user is not None or parts.query or parts.fragment:
        raise InvalidSetting(name, "***", "has a user, a query or a fragment; give the address of the console alone")
    return url.rstrip("?#").rstrip("/").removesuffix(PAGE).rstrip("/")
