"""Reads a file of descriptors as Envoy's rate limit service does: https://github.com/envoyproxy/ratelimit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from reconverge.contracts.model import field_at
from reconverge.errors import asked, shown
from reconverge.integrations.config.positions import InvalidConfiguration, Source

UNITS: Final = {
    "second": "second",
    "minute": "minute",
    "hour": "hour",
    "day": "day",
    "week": "week",
    "month": "month",  # 30 days in both
    "year": "P365D",
}
"""For each of Envoy's units, the window as limit strings write it."""
REQUESTS_MAX: Final = 2**32 - 1
ANY: Final = "*"
ROOT_FIELDS: Final = ("domain", "descriptors")
DESCRIPTOR_FIELDS: Final = (
    "key",
    "value",
    "rate_limit",
    "descriptors",
    "shadow_mode",
    "quota_mode",
    "detailed_metric",
    "value_to_metric",
    "share_threshold",
    "metadata",
)
RATE_FIELDS: Final = ("unit", "requests_per_unit", "unlimited", "name", "replaces")
Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rate:
    """The rate that a descriptor allows, its name, and the names of the rates that it replaces."""

    requests: int = 0
    unit: str = ""
    """A unit of `UNITS`; empty if all requests are admitted."""
    name: str = ""
    replaces: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Descriptor:
    """A descriptor: a key, the value that it matches (None for any), its limit, and the descriptors nested below it."""

    path: Path
    key: str = ""
    value: str | None = None
    rate: Rate | None = None
    shadow: bool = False
    shared: bool = False
    """Whether all values that match the pattern share one count."""
    below: tuple[Descriptor, ...] = ()

    @property
    def is_pattern(self) -> bool:
        """Whether the descriptor's value is a pattern, which matches several values."""
        return self.value is not None and ANY in self.value


@dataclass(slots=True)
class EnvoyFile:
    """Reads an Envoy file. The methods raise InvalidConfiguration, with line and field."""

    source: Source
    remarks: list[str] = field(default_factory=list[str])
    """Remarks on parts of the file that a contract cannot express."""

    def descriptors(self) -> tuple[Descriptor, ...]:
        """Returns the top-level descriptors of the file, in which all others are nested.

        Raises InvalidConfiguration.
        """
        table = self._table(self.source.said, ROOT_FIELDS, ())
        domain = self._text(table, "domain", ())
        if not domain:
            raise self.wrong("is missing; write the domain of the limits, which Envoy requires, too", ("domain",))
        self.remark(
            f"{shown(domain)} is not part of contracts; agents separate domains by their namespace", ("domain",)
        )
        return self._descriptors(table, ())

    def wrong(self, problem: str, path: Path) -> InvalidConfiguration:
        """Returns an error about a problem with the field at `path`; its message names the line and the field."""
        return InvalidConfiguration(
            self.source.name, problem, line=self.source.line_of(path) or 1, field=field_at(path)
        )

    def remark(self, text: str, path: Path) -> None:
        """Adds a remark on the field at `path`, to be read by the operator."""
        line = self.source.line_of(path) or 1
        self.remarks.append(f"{self.source.name}, line {line}: {field_at(path)}: {text}")

    def _descriptors(self, table: Mapping[str, Any], path: Path) -> tuple[Descriptor, ...]:
        listed = table.get("descriptors") or []
        if not isinstance(listed, list):
            raise self.wrong(f"must be a list of descriptors, not {shown(listed)}", (*path, "descriptors"))
        found = tuple(self._descriptor(each, (*path, "descriptors", str(place))) for place, each in enumerate(listed))
        seen = set[tuple[str, str | None]]()
        for each in found:
            if (each.key, each.value) in seen:
                raise self.wrong(f"{each.key!r} with the value {each.value!r} is written twice; remove one", each.path)
            seen.add((each.key, each.value))
        return found

    def _descriptor(self, said: object, path: Path) -> Descriptor:
        table = self._table(said, DESCRIPTOR_FIELDS, path)
        key, value = self._text(table, "key", path), self._text(table, "value", path)
        if not key:
            raise self.wrong("is missing; write the key of this descriptor", (*path, "key"))
        found = Descriptor(
            path,
            key,
            value or None,
            self._rate(table["rate_limit"], (*path, "rate_limit")) if "rate_limit" in table else None,
            self._truth(table, "shadow_mode", path),
            self._truth(table, "share_threshold", path),
            self._descriptors(table, path),
        )
        if found.shared and not found.is_pattern:
            raise self.wrong(
                f"needs a descriptor whose value contains {ANY}, not {value!r}", (*path, "share_threshold")
            )
        for name in ("detailed_metric", "value_to_metric"):
            if self._truth(table, name, path):
                self.remark("is left out: it is about the names of Envoy's metrics", (*path, name))
        if self._truth(table, "quota_mode", path):
            text = "is left out: this limit can refuse alone, but in Envoy only all limits with quota_mode together"
            self.remark(text, (*path, "quota_mode"))
        if table.get("metadata"):
            self.remark("is left out: a decision carries no metadata", (*path, "metadata"))
        return found

    def _rate(self, said: object, path: Path) -> Rate:
        table = self._table(said, RATE_FIELDS, path)
        unit, name = self._text(table, "unit", path).lower(), self._text(table, "name", path)
        replaces = self._replaces(table.get("replaces") or [], name, (*path, "replaces"))
        if self._truth(table, "unlimited", path):
            if unit:
                raise self.wrong(
                    f"is {unit!r}, and cannot be combined with unlimited; leave one of them out", (*path, "unit")
                )
            return Rate(name=name, replaces=replaces)
        if unit not in UNITS:
            raise self.wrong(f"must be one of {', '.join(UNITS)}, not {unit!r}{asked(unit, UNITS)}", (*path, "unit"))
        requests = table.get("requests_per_unit", 0)
        if isinstance(requests, bool) or not isinstance(requests, int) or not 0 <= requests <= REQUESTS_MAX:
            problem = f"must be a whole number from 0 to {REQUESTS_MAX}, not {shown(requests)}"
            raise self.wrong(problem, (*path, "requests_per_unit"))
        if "requests_per_unit" not in table:
            self.remark("is missing, which Envoy reads as 0: no request is admitted", (*path, "requests_per_unit"))
        return Rate(requests, unit, name, replaces)

    def _replaces(self, said: object, own: str, path: Path) -> tuple[str, ...]:
        if not isinstance(said, list):
            raise self.wrong(f"must be a list of names, not {shown(said)}", path)
        names = []
        for place, each in enumerate(said):
            name = self._text(self._table(each, ("name",), (*path, str(place))), "name", (*path, str(place)))
            if not name or name == own:
                raise self.wrong(f"must name another rate limit of the file, not {name!r}", (*path, str(place)))
            names.append(name)
        return tuple(names)

    def _table(self, said: object, known: Sequence[str], path: Path) -> Mapping[str, Any]:
        if not isinstance(said, dict):
            raise self.wrong(f"must be a mapping of names to values, not {shown(said)}", path)
        for name in said:
            if name not in known:
                problem = f"there is no such field; known: {', '.join(known)}{asked(name, known)}"
                raise self.wrong(problem, (*path, str(name)))
        return {name: value for name, value in said.items() if value is not None}

    def _text(self, table: Mapping[str, Any], name: str, path: Path) -> str:
        said = table.get(name, "")
        if isinstance(said, int) and not isinstance(said, bool):
            self.remark(f"{said} is read as the text '{said}'", (*path, name))
            return str(said)
        if not isinstance(said, str):
            raise self.wrong(f"must be text, not {shown(said)}; write it in quotes", (*path, name))
        return said

    def _truth(self, table: Mapping[str, Any], name: str, path: Path) -> bool:
        said = table.get(name, False)
        if not isinstance(said, bool):
            raise self.wrong(f"must be true or false, not {shown(said)}", (*path, name))
        return said
