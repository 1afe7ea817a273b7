"""Reads the environment variables of agents, and logs variables that are misspelt or have no effect.

A variable that no part of this package reads has no effect, so it is logged once in each process. Kubernetes sets
variables for every service, so a service named `reconverge` causes some that begin with `RECONVERGE_`; they are
ignored.

Most variables are read by `reconverge.integrations.config.load` alone, and an `Agent` that a program makes itself
ignores them. Such variables are logged, too, unless `load` has read them in the same process.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping
from typing import Final, TypeVar

from reconverge.errors import InvalidSetting, nearest
from reconverge.hub.registry import scheme_of

logger = logging.getLogger("reconverge")

H = TypeVar("H")
PREFIX: Final = "RECONVERGE_"
HUB: Final = "RECONVERGE_HUB"
NO_HUB: Final = (
    "reconverge: no hub is set, so each process counts alone (memory://), and a fleet of them admits a multiple of "
    "every limit; name a hub, as in Agent('redis://localhost:6379/0') or %s, or memory:// if so intended"
)
KNOWN: Final = frozenset(
    f"{PREFIX}{name}"
    for name in (
        "ASKS_MAX",
        "COLD_ALLOWANCE",
        "CONFIG",
        "CONSOLE_TOKENS",
        "CONTRACTS_MIN_VERSION",
        "CUSTOMER_SECRET",
        "EXCHANGE_TIMEOUT",
        "FALLBACK",
        "HUB",
        "IN_DOUBT",
        "KEY_BYTES_MAX",
        "KEY_SECRET",
        "LEASE_TTL",
        "LIMITS",
        "MAX_KEYS",
        "MAX_OVERSHOOT",
        "MAX_SILENCE",
        "MIN_SYNC_INTERVAL",
        "NAMESPACE",
        "NEW_KEYS_MAX",
        "NO_EXTENSIONS",
        "POLICY",
        "REDIS_SERVER",
        "REGION_SHARE",
        "REQUIRE_HUB",
        "SCARCE",
        "SETTINGS_SECRET",
        "SIGTERM",
        "STOP_TIMEOUT",
        "SWITCH",
        "SYNC_INTERVAL",
        "WHEN_HUB_IS_AWAY",
        "WIDE_HUB",
    )
)
"""The names of all environment variables that any part of this package reads."""
OF_AGENT: Final = frozenset(
    f"{PREFIX}{name}"
    for name in (
        "CONSOLE_TOKENS",
        "CONTRACTS_MIN_VERSION",
        "CUSTOMER_SECRET",
        "HUB",
        "KEY_SECRET",
        "NO_EXTENSIONS",
        "REDIS_SERVER",
        "SETTINGS_SECRET",
        "SWITCH",
        "WIDE_HUB",
    )
)
"""The names of environment variables that have an effect on an agent made without `load`."""
_FOREIGN: Final = re.compile(
    r"RECONVERGE_(TEST_\w+|(\w+_)?SERVICE_(HOST|PORT(_\w+)?)|(\w+_)?PORT(_\d+_(TCP|UDP)(_\w+)?)?)"
)
"""The names of variables that this project's own tests set, or that Kubernetes sets for a service."""

_said = set[str]()


def hub_as_said(hub: H | str | None) -> H | str:
    """Returns `hub`; if that is None, the URL in the environment variable `RECONVERGE_HUB`.

    If neither is given, returns `memory://`, and logs a warning the first time. Raises InvalidSetting, with the
    variable's name, if the variable is empty or no valid URL.
    """
    if hub is not None:
        return hub
    said = os.environ.get(HUB)
    if said is None:
        if HUB not in _said:
            _said.add(HUB)
            logger.warning(NO_HUB, HUB)
        return "memory://"
    if not said:
        raise InvalidSetting(HUB, said, "is empty; name a hub, such as redis://localhost:6379/0, or unset it")
    try:
        scheme_of(said)
    except InvalidSetting as error:
        raise InvalidSetting(HUB, error.value, error.problem) from None
    return said


def misspelt(environment: Mapping[str, str]) -> dict[str, str | None]:
    """Returns the variables `RECONVERGE_...` that this package does not know, each with the most similar known name.

    The value is None if no known name is similar.
    """
    unread = (name for name in environment if name.startswith(PREFIX) and name not in KNOWN)
    words = {name.removeprefix(PREFIX): name for name in KNOWN}  # without the common prefix
    found = {name: nearest(name.removeprefix(PREFIX), words) for name in unread if not _FOREIGN.fullmatch(name)}
    return {name: None if word is None else words[word] for name, word in found.items()}


def log_misspelt_variables() -> None:
    """Logs a warning for each variable that is not read, the first time in this process, without its value."""
    for name, meant in misspelt(os.environ).items():
        if name not in _said:
            _said.add(name)
            advice = f"did you mean {meant}?" if meant else f"known: {', '.join(sorted(KNOWN))}"
            logger.warning("reconverge: the environment variable %s is not known, and has no effect; %s", name, advice)


def variables_are_read() -> None:
    """Stops the warnings about variables that only `load` reads: in this process, `load` has read them."""
    _said.update(KNOWN - OF_AGENT)


def log_variables() -> None:
    """Logs a warning for each variable that has no effect on the agent being made; each variable once in a process."""
    log_misspelt_variables()
    unread = sorted(name for name in os.environ if name in KNOWN - OF_AGENT - _said)
    _said.update(unread)
    if unread:
        logger.warning(
            "reconverge: an Agent that a program makes itself does not read %s; make the Agent by"
            " reconverge.integrations.config.load(), which reads all variables",
            ", ".join(unread),
        )
