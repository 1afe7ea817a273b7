"""Settings of Flask-Limiter in an application's configuration: `RATELIMIT_DEFAULT` and the like.

Some are read, and mean the same as there. Each of the others is an error that names what to write instead: a setting
without effect would leave an application with fewer limits than its configuration says.
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
DIALECT: Final = "is not read here: dialect='x-ratelimit' has those names"
OTHERS: Final[Mapping[str, str]] = {
    **{
        f"{PREFIX}{kind}_{what}": f"is not read here; write Limits({word}_{what.lower()}=...)"
        for kind, word in (("DEFAULTS", "default_limits"), ("APPLICATION", "application_limits"))
        for what in ("PER_METHOD", "EXEMPT_WHEN", "DEDUCT_WHEN", "COST")
    },
    "RATELIMIT_STORAGE_URL": "is called RATELIMIT_STORAGE_URI",
    "RATELIMIT_STORAGE_OPTIONS": "is not read here: what a hub's client needs stands in the URL of the hub",
    "RATELIMIT_STRATEGY": f"is not read here: {STRATEGIES}",
    "RATELIMIT_KEY_PREFIX": "is the namespace of an Agent here: Limits(agent=Agent('redis://...', namespace='shop'))",
    "RATELIMIT_SWALLOW_ERRORS": "is not read here; write Limits(fail='open'), which is the default, or fail='closed'",
    "RATELIMIT_IN_MEMORY_FALLBACK": "is not read here: without its hub an agent decides from memory",
    "RATELIMIT_IN_MEMORY_FALLBACK_ENABLED": "is not read here: without its hub an agent decides from memory",
    "RATELIMIT_FAIL_ON_FIRST_BREACH": "is not read here: all limits of a request are charged together, or none is",
    "RATELIMIT_ON_BREACH_CALLBACK": "is not read here; write Limits(on_breach=...)",
    "RATELIMIT_KEY_FUNC": "is not read here; write Limits(key_func)",
    "RATELIMIT_META": "is not read here: there are no limits of refusals",
    "RATELIMIT_ON_META_BREACH_CALLBACK": "is not read here: there are no limits of refusals",
    "RATELIMIT_HEADER_LIMIT": DIALECT,
    "RATELIMIT_HEADER_REMAINING": DIALECT,
    "RATELIMIT_HEADER_RESET": DIALECT,
    "RATELIMIT_HEADER_RETRY_AFTER": DIALECT,
    "RATELIMIT_HEADER_RETRY_AFTER_VALUE": "is not read here: a refusal has Retry-After in seconds",
    "RATELIMIT_REQUEST_IDENTIFIER": "is not read here: limits are known by the views that they limit",
}
LIKENESS_MIN: Final = 0.9
"""A name this similar to one of these settings is a misspelling of it; an application may have names of its own."""


def agent_for(agent: Agent | str | None, storage_uri: str | None, config: Mapping[str, Any]) -> Agent | str | None:
    """The agent, or the URL of the hub that Flask-Limiter's setting names. Raises InvalidSetting if both are given."""
    if storage_uri is not None and agent is not None:
        raise InvalidSetting("storage_uri", storage_uri, "names a hub, and so does agent=; leave out one of them")
    if agent is not None:
        return agent
    uri = storage_uri if storage_uri is not None else config.get(STORAGE_URI)
    if uri is not None and not isinstance(uri, str):
        raise InvalidSetting(STORAGE_URI, uri, "is not the URL of a hub, such as 'redis://localhost:6379/0'")
    return None if uri is None else uri.removeprefix("reconverge+")


def said_in(config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that are read. Raises InvalidSetting for any other of Flask-Limiter, and for a misspelt one."""
    for name, value in config.items():
        if not name.startswith(PREFIX) or name in READ or value is None:
            continue
        if name in OTHERS:
            raise InvalidSetting(name, value, OTHERS[name])
        near = nearest(name, (*READ, *OTHERS), LIKENESS_MIN)
        if near is not None:
            raise InvalidSetting(name, value, f"there is no such setting; did you mean {near!r}?")
    return {name: config[name] for name in READ if config.get(name) is not None}


def check_hub(said: Mapping[str, Any], agent: object) -> None:
    """Raise InvalidSetting if the configuration names a hub that is not the one in use."""
    uri = said.get(STORAGE_URI)
    if uri is not None and agent_for(None, uri, {}) != agent:
        raise InvalidSetting(
            STORAGE_URI,
            uri,
            "is read by Limits(app=app) alone, and only if no other hub is given, so it has no effect here; write"
            " Limits(storage_uri=...) where the limits are made, or leave it out",
        )
