"""Settings that are published for a whole fleet: their fields, their checks, and their form as a signed payload."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from reconverge.errors import IN_QUOTES, ReconvergeError, shown
from reconverge.limit.checks import check_name
from reconverge.limit.grammar import parse_quotas
from reconverge.published.envelope import STAMP, Format, InvalidDocument, Secrets, check_stamp, seal_table
from reconverge.settings import SYNC_INTERVAL_MAX, SYNC_INTERVAL_MIN, check_seconds

MAGIC: Final = b"reconverge-settings-1 "
LIMITS_MAX: Final = 1000
LIFETIME_MAX_S: Final = 31 * 86_400
"""The longest validity in seconds: settings that are not published again in time expire."""
OVERSHOOT_MAX: Final = 1000

Word: TypeAlias = Literal["on", "shadow", "off"]
WORDS: Final[dict[str, Word]] = {"on": "on", "shadow": "shadow", "off": "off"}
"""The states that a limit can be switched to."""


@dataclass(frozen=True, slots=True)
class LimitOverride:
    """The published settings of one limit. If a field is None, each node's own setting applies."""

    limit: str | None = None
    """The quotas as a limit string, such as `100/minute`.

    It changes the quota and burst of each node's own limit, and nothing else.
    """
    max_overshoot: float | None = None
    """The most by which the limit may be exceeded, as a fraction: 0 is strict.

    It can only lower the value of a node's own policy.
    """
    sync_interval: float | None = None
    switch: Word | None = None


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """Settings for all nodes of a namespace. Where a field is None, each node's own setting applies."""

    namespace: str
    """The namespace of the settings; nodes of other namespaces reject them."""
    version: int
    """The version, higher than any published before; a node never returns to a lower one."""
    issued: int
    """When the settings were published, in seconds since 1970."""
    expires: int
    """When the settings expire, in seconds since 1970."""
    sync_interval: float | None = None
    switch: Word | None = None
    """The switch for all limits at once."""
    limits: Mapping[str, LimitOverride] = field(default_factory=dict[str, LimitOverride])
    """The settings of single limits, by name. They also apply to a limit that a node declares later."""


def seal(fleet_settings: FleetSettings, secrets: Secrets) -> bytes:
    """Returns the settings as a signed payload. Raises InvalidDocument if every node would reject them."""
    said = table_of(fleet_settings)
    checked(said)
    return seal_table(said, secrets, magic=MAGIC)


def checked(said: object) -> FleetSettings:
    """Returns the settings from parsed JSON or TOML. Raises InvalidDocument, which names the invalid field."""
    table = _table(said, SETTINGS_FIELDS)
    check_stamp(table, lifetime_max_s=LIFETIME_MAX_S)
    _check_interval(table)
    limits = _table(table.get("limits", {}), None, "limits")
    if len(limits) > LIMITS_MAX:
        raise InvalidDocument(f"has {len(limits)} limits; at most {LIMITS_MAX} are allowed; leave some out", "limits")
    return FleetSettings(
        namespace=table["namespace"],
        version=table["version"],
        issued=table["issued"],
        expires=table["expires"],
        sync_interval=table.get("sync_interval"),
        switch=_word(table.get("switch"), "switch"),
        limits={name: _limit_override(name, limit) for name, limit in limits.items()},
    )


SETTINGS: Final = Format(MAGIC, checked)
SETTINGS_FIELDS: Final = (*STAMP, "sync_interval", "switch", "limits")
LIMIT_FIELDS: Final = ("limit", "max_overshoot", "sync_interval", "switch")
"""The names of the settings of one limit. A new one must be added here, in `LimitOverride`, and in `Overrides`."""


def _limit_override(name: str, said: object) -> LimitOverride:
    path = ("limits", name)
    with _field(*path):
        check_name(name)
    if isinstance(said, str):
        problem = f"must be a table, not {shown(said)}; write {{limit = {said!r}}}, in YAML or JSON {{limit: {said!r}}}"
        raise InvalidDocument(problem, *path)
    table = _table(said, LIMIT_FIELDS, *path)
    text = table.get("limit")
    if text is not None:
        if not isinstance(text, str):
            raise InvalidDocument(f"must be a string like '100/minute', not {shown(text)}", *path, "limit")
        with _field(*path, "limit"):
            parse_quotas(text)
    overshoot = table.get("max_overshoot")
    if overshoot is not None and not (type(overshoot) in (int, float) and 0 <= overshoot <= OVERSHOOT_MAX):
        problem = f"must be a fraction from 0 to {OVERSHOOT_MAX}, not {shown(overshoot)}"
        raise InvalidDocument(problem, *path, "max_overshoot")
    _check_interval(table, *path)
    return LimitOverride(text, overshoot, table.get("sync_interval"), _word(table.get("switch"), *path, "switch"))


def _table(said: object, known: Sequence[str] | None, *path: str) -> dict[str, Any]:
    if not isinstance(said, dict):
        raise InvalidDocument(f"must be a table, not {shown(said)}", *path)
    table: dict[Any, Any] = said
    for name in table:
        if not isinstance(name, str):
            raise InvalidDocument(f"has the key {shown(name)}, which is not a string; put it in quotes", *path)
        if known is not None and name not in known:
            raise InvalidDocument(f"there is no such setting; known: {', '.join(known)}", *path, name)
    return table


def _word(said: object, *path: str) -> Word | None:
    if said is None:
        return None
    if not isinstance(said, str) or said not in WORDS:
        quotes = f"; {IN_QUOTES}" if isinstance(said, bool) else ""
        raise InvalidDocument(f"must be {', '.join(map(repr, WORDS))}, not {shown(said)}{quotes}", *path)
    return WORDS[said]


def _check_interval(table: Mapping[str, Any], *path: str) -> None:
    if table.get("sync_interval") is not None:
        with _field(*path, "sync_interval"):
            check_seconds("sync_interval", table["sync_interval"], SYNC_INTERVAL_MIN, SYNC_INTERVAL_MAX)


@contextmanager
def _field(*path: str) -> Iterator[None]:
    """Turns a ReconvergeError in the `with` block into an InvalidDocument about the field at `path`."""
    try:
        yield
    except ReconvergeError as error:
        raise InvalidDocument(str(error), *path) from None


def table_of(fleet_settings: FleetSettings) -> dict[str, Any]:
    """Returns the settings as a dict, without the fields that are None."""
    said = {
        name: getattr(fleet_settings, name) for name in SETTINGS_FIELDS if getattr(fleet_settings, name) is not None
    }
    said["limits"] = {
        name: {each: getattr(limit, each) for each in LIMIT_FIELDS if getattr(limit, each) is not None}
        for name, limit in fleet_settings.limits.items()
    }
    return said
