"""Makes one agent of this process for each storage URI, with the settings in the URI and in keyword options."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlunsplit

from reconverge.agent.agent import Agent
from reconverge.errors import InvalidSetting, asked
from reconverge.hub.registry import MEMORY, UNKNOWN_OPTION, renamed, scheme_of, split_url

logger = logging.getLogger("reconverge")

NAMESPACE: Final = "limits"
"""The default namespace; it separates a storage's counts from the application's own limits."""
KEY_BYTES_MAX: Final = 256
"""The longest key, in bytes of UTF-8, that is counted under its own name; a hash replaces a longer key."""
PREFIXES: Final = ("async+", "reconverge+")
BEHIND: Final = "+reconverge"
"""The wrong end of a scheme, in place of the prefix `reconverge+`."""
NUMBERS: Final = (
    "sync_interval",
    "min_sync_interval",
    "max_silence",
    "lease_ttl",
    "max_overshoot",
    "cold_allowance",
    "exchange_timeout",
    "stop_timeout",
)
WHOLE_NUMBERS: Final = ("max_keys", "new_keys_max", "asks_max")
OTHERS: Final = ("namespace", "policy", "scarce", "when_hub_is_away", "clock", "settings_secret", "credentials")
"""Settings of `Agent` that a storage accepts, too, with the same meaning."""
NOT_IN_URIS: Final = frozenset(("clock", "settings_secret", "credentials"))
"""Arguments that cannot be in a URI, or should not, because URIs are printed."""
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
        "protocol",
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
"""Settings that tune a Redis client. The storage itself has no Redis client, so they have no effect."""
ADDRESS: Final = "reconverge+redis://HOST:PORT/DB"
LOGIN: Final = "reconverge+redis://USER:PASSWORD@HOST, or pass credential_provider"
SERVICE: Final = "reconverge+redis+sentinel://HOST/SERVICE?sentinel_password=..."
IN_URIS: Final = {
    **dict.fromkeys(("host", "port", "db", "path", "unix_socket_path", "startup_nodes", "connection_pool"), ADDRESS),
    **dict.fromkeys(("username", "password"), LOGIN),
    **dict.fromkeys(("service_name", "sentinel_kwargs"), SERVICE),
}
"""Options by which the library's own storages find a server or log in, each with the form of a URI to write instead."""
TLS: Final = "reconverge+rediss://HOST?ssl_cert_reqs=none, or ssl_ca_certs=FILE"
"""The form of a URI to write in place of options whose names begin with "ssl"."""

_agents: dict[tuple[str, tuple[tuple[str, object], ...], object], Agent] = {}
"""The agents of this process, by URI and settings; storages with equal ones share an agent."""


def settings_at(uri: str, options: Mapping[str, Any], *, own: frozenset[str] = NONE) -> tuple[str, dict[str, Any]]:
    """Returns the hub and the settings in a storage URI: `reconverge+redis://localhost:6379/0?sync_interval=0.5`.

    Args:
        uri: a hub's URL, with or without `reconverge+` in front. Its query may have settings of `reconverge.Agent`:
            `namespace` ("limits" by default), `policy`, `sync_interval`, `max_keys` and others. The rest of the query
            belongs to the hub.
        options: the same settings as keyword options; `key_prefix` is another name for `namespace`. A
            `credential_provider` of redis-py gives the `credentials`.
        own: further settings, which belong to the storage itself.

    Raises:
        InvalidSetting: a setting is unknown, not a number, or given twice; or the URI is invalid.
    """
    known = SETTINGS | own
    hub, settings = _parsed(uri, known - NOT_IN_URIS)
    for said, value in options.items():
        name = "namespace" if said == "key_prefix" else said
        if name == "credential_provider" and callable(getattr(value, "get_credentials", None)):
            settings["credentials"] = value.get_credentials
        elif name in CLIENT_OPTIONS:
            _log_client_option(name)
        elif name in IN_URIS or name.startswith("ssl"):
            raise InvalidSetting(name, "***", f"belongs in the storage's URI; write {IN_URIS.get(name, TLS)}")
        elif name not in known:
            raise InvalidSetting(name, value, f"is not a setting of a storage; known: {', '.join(sorted(known))}")
        elif name in settings:
            raise InvalidSetting(name, value, "is in the URI, too; leave out one of them")
        else:
            settings[name] = _read(name, value)
    settings.setdefault("namespace", NAMESPACE)
    return hub, settings


def agent_at(hub: str, settings: Mapping[str, Any], *, apart: object = None, own: frozenset[str] = NONE) -> Agent:
    """Returns the agent of this process for a hub and settings.

    Calls with equal `hub`, `settings` and `apart` return the same agent; callers with different values of `apart` get
    different agents. Only `memory://` without a name gets a new agent each time. `own` names the settings that belong
    to the calling storage; they appear in the error about an unknown setting. Raises the errors of `Agent`.
    """
    if hub == f"{MEMORY}://":
        return _new_agent(hub, settings, own)
    known = (hub, tuple(sorted(settings.items())), apart)
    if known not in _agents:
        # No lock, because a fork might leave it locked. Of two agents made at once, one is dropped before it starts.
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
        problem = f"{error.problem}; settings of a storage: {', '.join(known)}{asked(option, known)}"
        raise InvalidSetting("hub", error.value, problem) from None


def _parsed(uri: str, known: frozenset[str]) -> tuple[str, dict[str, Any]]:
    """Returns the hub's URL, without our settings in its query, and these settings. `known` are their names."""
    for prefix in PREFIXES:
        uri = uri.removeprefix(prefix)
    scheme = scheme_of(uri)  # raises an error that describes an invalid URL
    if scheme.endswith(BEHIND):
        raise renamed("storage_uri", uri, scheme, f"reconverge+{scheme.removesuffix(BEHIND)}")
    parts = split_url(uri)
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
                raise InvalidSetting(name, value, "is in the URI twice; remove one of them")
            if not value:
                raise InvalidSetting(name, value, "has no value in the URI; remove it, or give it a value")
            settings[name] = _read(name, value)
    rest = urlencode([pair for pair in query if pair[0] not in taken])
    if len(rest) == len(urlencode(query)):
        return uri, settings
    # Not urlunsplit alone: it would drop the slashes of a URL without a host.
    hub = urlunsplit(("", parts.netloc, parts.path, rest, "")).removeprefix("//")
    return f"{parts.scheme}://{hub}", settings


def _log_client_option(name: str) -> None:
    logger.warning("reconverge: the setting %s is for a Redis client, which is not used here; remove it", name)


def _read(name: str, value: object) -> object:
    if name not in (*NUMBERS, *WHOLE_NUMBERS) or not isinstance(value, str):
        return value
    try:
        if value != value.strip() or "_" in value:  # Python would ignore these characters
            raise ValueError
        return int(value) if name in WHOLE_NUMBERS else float(value)
    except ValueError:
        raise InvalidSetting(name, value, "is not a number; write one such as 5 or 0.5") from None


def key_of(key: str) -> str:
    """Returns `key`, or a hash of it if an agent cannot count under it: it is too long, empty or not valid Unicode."""
    if key.isascii() and 0 < len(key) <= KEY_BYTES_MAX and key[0] != "\x00":
        return key
    text = key.encode(errors="surrogatepass")
    if text and len(text) <= KEY_BYTES_MAX and text[0] and not any("\ud800" <= letter <= "\udfff" for letter in key):
        return key
    return f"#{blake2b(text, digest_size=16).hexdigest()}"
