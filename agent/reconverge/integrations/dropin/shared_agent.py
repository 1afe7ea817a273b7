"""One agent for each storage URI of a process, with the settings that stand in the URI or beside it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from reconverge.agent.agent import Agent
from reconverge.errors import InvalidSetting, asked
from reconverge.hub.registry import MEMORY, UNKNOWN_OPTION, scheme_of

logger = logging.getLogger("reconverge")

NAMESPACE: Final = "limits"
"""By default; counts of a storage are none of the application's own limits."""
KEY_BYTES_MAX: Final = 256
"""The longest key that is counted under its own name; longer ones go by their hash."""
PREFIXES: Final = ("async+", "reconverge+")
NUMBERS: Final = (
    "sync_interval",
    "min_sync_interval",
    "lease_ttl",
    "max_overshoot",
    "cold_allowance",
    "exchange_timeout",
    "stop_timeout",
)
WHOLE_NUMBERS: Final = ("max_keys", "new_keys_max", "asks_max")
OTHERS: Final = ("namespace", "policy", "scarce", "clock", "settings_secret")
"""Settings of an agent that a storage takes, beside the numbers; all mean what they mean there."""
NOT_IN_URIS: Final = frozenset(("clock", "settings_secret"))
"""Arguments that cannot stand in a URI, or should not: URIs are printed."""
SETTINGS: Final = frozenset((*NUMBERS, *WHOLE_NUMBERS, *OTHERS))
NONE: Final[frozenset[str]] = frozenset()
CLIENT_OPTIONS: Final = frozenset(
    (
        "client_name",
        "decode_responses",
        "encoding",
        "health_check_interval",
        "implementation",
        "max_connections",
        "retry",
        "retry_on_error",
        "retry_on_timeout",
        "single_connection_client",
        "socket_connect_timeout",
        "socket_keepalive",
        "socket_keepalive_options",
        "socket_timeout",
    )
)
"""Settings that tune a Redis client. No Redis client works for the storage itself, so they have no effect."""

_agents: dict[tuple[str, tuple[tuple[str, object], ...], object], Agent] = {}
"""The agents of this process, which all storages of the same URI and settings decide with."""


def settings_at(uri: str, options: Mapping[str, Any], *, own: frozenset[str] = NONE) -> tuple[str, dict[str, Any]]:
    """The hub and the settings that a storage URI such as `reconverge+redis://localhost:6379/0?sync_interval=0.5` says.

    Args:
        uri: a hub's URL, behind `reconverge+` or not, with settings of `reconverge.Agent` in its query: `namespace` (by
            default "limits"), `policy`, `sync_interval`, `max_keys` and the like. The rest of the query is the hub's.
        options: the same settings, where one would rather write them down there; `key_prefix` is another word for
            `namespace`.
        own: further settings, which are the storage's.

    Raises:
        InvalidSetting: a setting is unknown, is no number, or is said twice; or the URI is none.
    """
    known = SETTINGS | own
    hub, settings = _parsed(uri, known - NOT_IN_URIS)
    for said, value in options.items():
        name = "namespace" if said == "key_prefix" else said
        if name in CLIENT_OPTIONS:
            _log_client_option(name)
        elif name not in known:
            raise InvalidSetting(name, value, f"is no setting of a storage; known: {', '.join(sorted(known))}")
        elif name in settings:
            raise InvalidSetting(name, value, "stands in the URI already; leave one of them out")
        else:
            settings[name] = _read(name, value)
    settings.setdefault("namespace", NAMESPACE)
    return hub, settings


def agent_at(hub: str, settings: Mapping[str, Any], *, apart: object = None, own: frozenset[str] = NONE) -> Agent:
    """The agent of this process for a hub and settings; callers with the same hub, settings and `apart` share it.

    `own` are further words of the URI, for the message about one that is not known.

    With one exception: `memory://` without a name is another one each time. Raises what `Agent` does.
    """
    if hub == f"{MEMORY}://":
        return _new_agent(hub, settings, own)
    known = (hub, tuple(sorted(settings.items())), apart)
    if known not in _agents:
        # Without a lock, which a fork might leave locked. Of two that come at once, one is left out before it begins.
        _agents.setdefault(known, _new_agent(hub, settings, own))
    return _agents[known]


def _new_agent(hub: str, settings: Mapping[str, Any], own: frozenset[str]) -> Agent:
    try:
        return Agent(hub, key_bytes_max=KEY_BYTES_MAX, **settings)
    except InvalidSetting as error:
        if error.name != "hub" or UNKNOWN_OPTION not in error.problem:
            raise
        option = error.problem.partition(UNKNOWN_OPTION)[2].strip(": ").partition(";")[0]
        known = sorted((SETTINGS | own) - NOT_IN_URIS)
        problem = f"{error.problem}; and of a storage: {', '.join(known)}{asked(option, known)}"
        raise InvalidSetting("hub", error.value, problem) from None


def _parsed(uri: str, known: frozenset[str]) -> tuple[str, dict[str, Any]]:
    """Returns the hub's URL, and the settings that stand in its query."""
    for prefix in PREFIXES:
        uri = uri.removeprefix(prefix)
    scheme_of(uri)  # which tells what is wrong with something that is no URL
    parts = urlsplit(uri)
    query = parse_qsl(parts.query, keep_blank_values=True)
    settings: dict[str, Any] = {}
    taken: set[str] = set()
    for said, value in query:
        name = "namespace" if said == "key_prefix" else said
        if name in CLIENT_OPTIONS:
            _log_client_option(name)
            taken.add(said)
        elif name in known:
            taken.add(said)
            if name in settings:
                raise InvalidSetting(name, value, "stands in the URI twice; leave one of them out")
            if not value:
                raise InvalidSetting(name, value, "has no value in the URI; leave it out, or give one")
            settings[name] = _read(name, value)
    rest = urlencode([pair for pair in query if pair[0] not in taken])
    if len(rest) == len(urlencode(query)):
        return uri, settings
    # Not urlunsplit alone: it would drop the slashes of a URL that names no host.
    hub = urlunsplit(("", parts.netloc, parts.path, rest, "")).removeprefix("//")
    return f"{parts.scheme}://{hub}", settings


def _log_client_option(name: str) -> None:
    logger.warning("reconverge: %s tunes a client that is not used here, and has no effect", name)


def _read(name: str, value: object) -> object:
    """The value of a setting, which in a query or an environment variable is text. Raises InvalidSetting."""
    if name not in (*NUMBERS, *WHOLE_NUMBERS) or not isinstance(value, str):
        return value
    try:
        if value != value.strip() or "_" in value:  # which Python would take for nothing
            raise ValueError
        return int(value) if name in WHOLE_NUMBERS else float(value)
    except ValueError:
        raise InvalidSetting(name, value, "is not a number; write one such as 5 or 0.5") from None


def key_of(key: str) -> str:
    """`key` as an agent from here can count under it: itself, or its hash if it is too long, empty or not Unicode."""
    if key.isascii() and 0 < len(key) <= KEY_BYTES_MAX and key[0] != "\x00":
        return key
    text = key.encode(errors="surrogatepass")
    if text and len(text) <= KEY_BYTES_MAX and text[0] and not any("\ud800" <= letter <= "\udfff" for letter in key):
        return key
    return f"#{blake2b(text, digest_size=16).hexdigest()}"
