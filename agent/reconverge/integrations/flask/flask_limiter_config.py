"""Reads Flask-Limiter's settings, such as `RATELIMIT_DEFAULT`, from an application's configuration.

Some of these settings are used, with the same meaning. Any other setting of Flask-Limiter raises an error, which shows
the code to write instead: a setting without effect would leave an application with fewer limits than its configuration
declares.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from reconverge.agent.agent import Agent
from reconverge.errors import InvalidSetting, nearest
from reconverge.integrations.web.options import STRATEGIES

PREFIX: Final = "RATELIMIT_"
DEFAULT: Final = "RATELIMIT_DEFAULT"
APPLICATION: Final = "RATELIMIT_APPLICATION"
STORAGE_URI: Final = "RATELIMIT_STORAGE_URI"
ENABLED: Final = "RATELIMIT_ENABLED"
HEADERS_ENABLED: Final = "RATELIMIT_HEADERS_ENABLED"
READ: Final = (DEFAULT, APPLICATION, STORAGE_URI, ENABLED, HEADERS_ENABLED)
DIALECT: Final = "is not supported; write Limits(dialect='x-ratelimit') for fields of these names"
OTHERS: Final[Mapping[str, str]] = {
    **{
        f"{PREFIX}{kind}_{what}": f"is not supported; write Limits({word}_{what.lower()}=...)"
        for kind, word in (("DEFAULTS", "default_limits"), ("APPLICATION", "application_limits"))
        for what in ("PER_METHOD", "EXEMPT_WHEN", "DEDUCT_WHEN", "COST")
    },
    "RATELIMIT_STORAGE_URL": "is an old name; write RATELIMIT_STORAGE_URI",
    "RATELIMIT_STORAGE_OPTIONS": "is not supported; write options of the client in the URL of the hub",
    "RATELIMIT_STRATEGY": f"is not supported: {STRATEGIES}",
    "RATELIMIT_KEY_PREFIX": "is not supported; write Limits(agent=Agent('redis://...', namespace='shop'))",
    "RATELIMIT_SWALLOW_ERRORS": "is not supported; write Limits(fail='open'), the default, or fail='closed'",
    "RATELIMIT_IN_MEMORY_FALLBACK": "is not supported: without its hub an agent decides from memory",
    "RATELIMIT_IN_MEMORY_FALLBACK_ENABLED": "is not supported: without its hub an agent decides from memory",
    "RATELIMIT_FAIL_ON_FIRST_BREACH": "is not supported: all limits of a request are charged together, or none",
    "RATELIMIT_ON_BREACH_CALLBACK": "is not supported; write Limits(on_breach=...)",
    "RATELIMIT_KEY_FUNC": "is not supported; write Limits(key_func)",
    "RATELIMIT_META": "is not supported: there are no limits on refusals",
    "RATELIMIT_ON_META_BREACH_CALLBACK": "is not supported: there are no limits on refusals",
    "RATELIMIT_HEADER_LIMIT": DIALECT,
    "RATELIMIT_HEADER_REMAINING": DIALECT,
    "RATELIMIT_HEADER_RESET": DIALECT,
    "RATELIMIT_HEADER_RETRY_AFTER": DIALECT,
    "RATELIMIT_HEADER_RETRY_AFTER_VALUE": "is not supported: a refusal has Retry-After in seconds",
    "RATELIMIT_REQUEST_IDENTIFIER": "is not supported: limits are identified by the views that they limit",
}
LIKENESS_MIN: Final = 0.9
"""The least similarity, from 0 to 1, at which a name counts as a misspelt setting of Flask-Limiter, not as the
application's own."""


def agent_for(agent: Agent | str | None, storage_uri: str | None, config: Mapping[str, Any]) -> Agent | str | None:
    """Returns `agent`, or else the hub's URL: `storage_uri` or the one in `config`; None without any.

    Raises InvalidSetting if both `agent` and `storage_uri` are given.
    """
    if storage_uri is not None and agent is not None:
        raise InvalidSetting("storage_uri", storage_uri, "names a hub, and so does agent=; leave out one of them")
    if agent is not None:
        return agent
    uri = storage_uri if storage_uri is not None else config.get(STORAGE_URI)
    if uri is not None and not isinstance(uri, str):
        raise InvalidSetting(STORAGE_URI, uri, "is not the URL of a hub, such as 'redis://localhost:6379/0'")
    return None if uri is None else uri.removeprefix("reconverge+")


def said_in(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns those settings of Flask-Limiter in `config` that have an effect here.

    Raises InvalidSetting for Flask-Limiter's other settings, and for names that resemble one of its settings.
    """
    for name, value in config.items():
        if not name.startswith(PREFIX) or name in READ or value is None:
            continue
        if name in OTHERS:
            raise InvalidSetting(name, value, OTHERS[name])
        near = nearest(name, (*READ, *OTHERS), LIKENESS_MIN)
        if near is not None:
            raise InvalidSetting(name, value, f"there is no such setting; did you mean {near!r}?")
    return {name: config[name] for name in READ if config.get(name) is not None}


def check_unchanged(config: Mapping[str, Any], read: Mapping[str, Any]) -> None:
    """Raises InvalidSetting if a setting in `config`, except `ENABLED`, differs from that in `read`, read before."""
    for name, value in said_in(config).items():
        if name != ENABLED and read.get(name) != value:
            problem = "was set after the configuration had been read, and has no effect; write it above Limits(app=app)"
            raise InvalidSetting(name, value, f"{problem}, or call limits.init_app(app) below it")


def check_hub(said: Mapping[str, Any], agent: object) -> None:
    """Raises InvalidSetting if the configuration `said` names another hub than that of `agent`, which is in use."""
    uri = said.get(STORAGE_URI)
    if uri is not None and agent_for(None, uri, {}) != agent:
        raise InvalidSetting(
            STORAGE_URI,
            uri,
            "is read by Limits(app=app) only, and only if no other hub is given, so it has no effect here; write"
            " Limits(storage_uri=...) where the limits are made, or leave it out",
        )
