"""Opens the hub of a URL: finds the installed package for its scheme."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Final
from urllib.parse import SplitResult, urlsplit

from reconverge.errors import HIDDEN, SECRET, InvalidSetting, MissingExtra, UnknownHub
from reconverge.hub.port import Hub

GROUP = "reconverge.hubs"
"""The entry-point group of hubs; each entry has the name of a scheme of URLs, and is a `HubFactory`."""
MEMORY = "memory"
"""The scheme of the URL memory://, with which a node has no hub."""
UNKNOWN_OPTION: Final = "has an option that is not known"
"""The beginning of the error about an option in a URL that the hub does not know."""
EXTRAS: Final = {"embedded": "embedded", "mqtt": "mqtt", "mqtts": "mqtt"}
"""For each scheme, the extra of this package that installs its hub; schemes not listed need the extra `redis`."""

ELSEWHERE: Final = {
    "redis+socket": "redis+unix",
    "redis+ssl": "rediss",
    "redis+tls": "rediss",
    "redis-cluster": "redis+cluster",
    "redis-sentinel": "redis+sentinel",
    "sentinel": "redis+sentinel",
    "tcp": "redis",
    "unix": "redis+unix",
}
"""Schemes by which other programs name such servers (Docker writes `tcp`), each with the scheme to write here."""
ONE_SERVER: Final = frozenset(("redis", "rediss", "valkey", "valkeys"))
"""The schemes of URLs that name a single server; for several servers there are other schemes, such as
`redis+cluster`."""

Credentials = Callable[[], Sequence[str]]
"""A function that returns the present login to a hub, `(user, password)` or `(password,)`. It may take a while, for
example to fetch the login."""


@dataclass(frozen=True, slots=True)
class HubSettings:
    """The settings of the agent that a hub needs when it is opened."""

    namespace: str
    timeout_s: float
    """The time that one exchange may take, in seconds, with connecting."""
    credentials: Credentials | None = field(default=None, repr=False)
    """A function that returns the login, called before each connection; None if the login is in the URL, if any."""


HubFactory = Callable[[str, HubSettings], Hub]


def open_hub(url: str, settings: HubSettings) -> Hub:
    """Returns the hub for `url`, not connected yet.

    Raises:
        UnknownHub: no installed package supports the scheme.
        MissingExtra: a package supports it, but needs another package that is not installed.
        InvalidSetting: the URL cannot be read.
    """
    scheme = scheme_of(url)
    if scheme in ONE_SERVER and "," in re.split("[/?]", url.rpartition("@")[2].rpartition("://")[2])[0]:
        problem = f"names several servers; write {scheme}+sentinel://HOST,HOST/SERVICE or {scheme}+cluster://HOST,HOST/"
        raise InvalidSetting("hub", redacted(url), problem)
    entries = {entry.name: entry for entry in entry_points(group=GROUP)}
    meant = ELSEWHERE.get(scheme, scheme.removeprefix("reconverge+").removesuffix("+reconverge"))
    if meant != scheme and meant in entries:
        raise renamed("hub", url, scheme, meant)
    if scheme not in entries:
        raise UnknownHub(scheme, {*entries, MEMORY})
    try:
        factory: HubFactory = entries[scheme].load()
    except ModuleNotFoundError as error:
        hub = f"{'an' if scheme[0] in 'aeiou' else 'a'} {scheme}:// hub"
        raise MissingExtra(hub, error.name or "?", EXTRAS.get(scheme, "redis")) from error
    return factory(url, settings)


def renamed(setting: str, url: str, scheme: str, meant: str) -> InvalidSetting:
    """Returns the error about the scheme of a `url`, which is called `meant` here."""
    problem = f"has the scheme {scheme!r}, which is called {meant} here"
    return InvalidSetting(setting, redacted(url), f"{problem}; write {meant}{redacted(url)[len(scheme) :]}")


def scheme_of(url: str) -> str:
    """Returns the part of `url` before `://`. Raises InvalidSetting if there is no such part."""
    scheme, found, _ = url.partition("://") if isinstance(url, str) else ("", "", "")
    if not found or not re.fullmatch(r"[a-z][a-z0-9+.-]*", scheme):
        shown = redacted(url) if isinstance(url, str) else url
        if found and re.fullmatch(r"[a-z][a-z0-9+.-]*", scheme.lower()):
            raise InvalidSetting("hub", shown, f"has its scheme in capitals; write {scheme.lower()}://")
        problem = "is not a URL like redis://localhost:6379/0, memory:// or embedded://"
        if isinstance(url, str) and re.match(r"[0-9]+ ?(?:/|per|in|concurrent)", url):
            problem = f"is a limit, and {problem}, which names a hub; write agent.limit('login', {url!r})"
        elif isinstance(url, str) and url[:1] in {'"', "'"}:
            problem = "has a quotation mark at its beginning, which is no part of a URL; leave the marks out"
        elif isinstance(url, str) and re.match(r"\$|%[({]?\w+[)}%]|\{|<", url):
            problem = "is a placeholder that nothing has replaced; pass its value, such as redis://localhost:6379/0"
        elif isinstance(url, str) and url[:1].isspace() and scheme.strip():
            problem = "has a blank at its beginning, which is no part of a URL; leave it out"
        raise InvalidSetting("hub", shown, problem)
    comment = re.search(r"[ \t]#", url)
    if comment is not None or url.endswith((" ", "\t", "\xa0")):
        what = "a blank at its end, which is" if comment is None else "a comment behind it, which is"
        raise InvalidSetting("hub", redacted(url), f"has {what} no part of a URL; leave it out")
    return scheme


def split_url(url: str) -> SplitResult:
    """Returns the parts of a hub's URL, which may name several hosts. Raises ValueError for a bracket in its login.

    `urlsplit` alone does not do: from Python 3.14 on, it refuses an IPv6 address beside other hosts.
    """
    scheme, found, rest = url.partition("://")
    hosts = re.split(r"[/?#]", rest, maxsplit=1)[0] if found else ""
    login, _, _ = hosts.rpartition("@")
    if "[" in login or "]" in login:
        raise ValueError("there is a bracket in the login")
    return urlsplit(f"{scheme}{found}{rest.removeprefix(hosts)}")._replace(netloc=hosts)


_SECRET_OPTION: Final = re.compile(rf"(?i)((?:{'|'.join(SECRET)})=)[^&#]*")


def redacted(url: str) -> str:
    """Returns `url` without password and user name, fit to be shown.

    Everything before the last @ is removed, even where a parser would not take it for a password: a password may
    contain a / ? or # that should have been escaped.
    """
    shown = _SECRET_OPTION.sub(rf"\1{HIDDEN}", url)
    if "@" not in url:
        return shown
    scheme = re.match(r"[a-z][a-z0-9+.-]*://", url)
    _, found, place = shown.rpartition("@")
    return f"{scheme[0] if scheme else ''}{HIDDEN}{found}{place if found else ''}"


def advice_about(name: str) -> str:
    """Returns a clause of advice for the message about a hub that does not answer.

    `name` is the hub's redacted URL, or a description of the hub.
    """
    if "://" not in name:
        return "its own log may say why it does not answer"
    return f"`reconverge doctor --hub {'URL' if '***' in name or ' ' in name else name}` says what to correct"
