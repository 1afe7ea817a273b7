"""Opens the hub of a URL: finds the installed package for its scheme."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Final

from reconverge.errors import InvalidSetting, MissingExtra, UnknownHub
from reconverge.hub.port import Hub

GROUP = "reconverge.hubs"
"""The entry-point group: each entry is named after a scheme and is a `HubFactory`."""
MEMORY = "memory"
"""The scheme of a node without a hub; no hub is opened for it."""
UNKNOWN_OPTION: Final = "has an option that is not known"
"""The beginning of an error about an unknown option of a hub's URL."""
EXTRAS: Final = {"embedded": "embedded", "mqtt": "mqtt", "mqtts": "mqtt"}
"""The extra that installs the packages for a scheme, if it is not `redis`."""


@dataclass(frozen=True, slots=True)
class HubSettings:
    """The settings of a hub that come from the agent that opens it."""

    namespace: str
    timeout_s: float
    """How long one exchange may take, connecting included."""


HubFactory = Callable[[str, HubSettings], Hub]


def open_hub(url: str, settings: HubSettings) -> Hub:
    """The hub for `url`; nothing is connected yet.

    Raises:
        UnknownHub: no installed package answers to the scheme.
        MissingExtra: one does, but needs a package that is not installed.
        InvalidSetting: the URL cannot be read.
    """
    scheme = scheme_of(url)
    entries = {entry.name: entry for entry in entry_points(group=GROUP)}
    if scheme not in entries:
        raise UnknownHub(scheme, {*entries, MEMORY})
    try:
        factory: HubFactory = entries[scheme].load()
    except ModuleNotFoundError as error:
        hub = f"{'an' if scheme[0] in 'aeiou' else 'a'} {scheme}:// hub"
        raise MissingExtra(hub, error.name or "?", EXTRAS.get(scheme, "redis")) from error
    return factory(url, settings)


def scheme_of(url: str) -> str:
    """Returns the part of a URL before `://`. Raises InvalidSetting when there is none."""
    scheme, found, _ = url.partition("://") if isinstance(url, str) else ("", "", "")
    if not found or not re.fullmatch(r"[a-z][a-z0-9+.-]*", scheme):
        shown = redacted(url) if isinstance(url, str) else url
        if found and re.fullmatch(r"[a-z][a-z0-9+.-]*", scheme.lower()):
            raise InvalidSetting("hub", shown, f"has its scheme in capitals; write {scheme.lower()}://")
        raise InvalidSetting("hub", shown, "is not a URL like redis://localhost:6379/0, memory:// or embedded://")
    return scheme


def redacted(url: str) -> str:
    """`url` without the password and the user's name, fit to be shown.

    What stands before the last @ is taken for them even where a parser would not: a password may hold a / ? or #
    that should have been escaped.
    """
    shown = re.sub(r"(?i)((?:password|token|secret|username)=)[^&#]*", r"\1***", url)
    if "@" not in url:
        return shown
    scheme = re.match(r"[a-z][a-z0-9+.-]*://", url)
    _, found, place = shown.rpartition("@")
    return f"{scheme[0] if scheme else ''}***{found}{place if found else ''}"


def advice_about(name: str) -> str:
    """Returns advice about a hub that does not answer; its name is its redacted URL, or describes it."""
    if "://" not in name:
        return "what keeps it from answering, its own log may say"
    return f"`reconverge doctor --hub {'URL' if '***' in name or ' ' in name else name}` says what to correct"
