"""A vocabulary for tests of files of contracts: a document with every field, and hundreds of ways to break a file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Final

import yaml

from reconverge.integrations.contracts.rule_files import LANGUAGES, written_table

Table = dict[str, Any]

WHOLE: Final[Table] = {
    "unknown": "free",
    "plans": {
        "free": {
            "limits": {
                "api": "50/s",
                "renders": "20 in flight lease 10s",
                "parts": {"limit": "20/PT10M", "algorithm": "sliding-slices", "slices": 5},
                "log": {"limit": "20/hour", "algorithm": "sliding-log", "count_refused": True},
                "bucket": {"limit": "20/s burst 40", "initial": 0, "refill": "interval"},
                "month": {
                    "limit": "9/P30D",
                    "algorithm": "fixed-window",
                    "align": "calendar",
                    "timezone": "Europe/Berlin",
                },
                "users": {
                    "limit": "20/s",
                    "soft": "10%",
                    "max_debt": 5,
                    "costs": {"GET": 1, "*": 2},
                    "by": ["customer", "user"],
                    "switch": {"to": "shadow", "percent": 50, "until": "2027-01-01T00:00:00Z"},
                },
            }
        },
        "trial": {"limits": {"api": "500/s"}, "lasts": "P14D", "then": "free"},
    },
    "customers": {
        "ada": {
            "plan": "free",
            "limits": {"api": "70/s", "log": {"limit": "90/hour", "algorithm": "sliding-log"}},
            "since": "2026-11-23T12:00:00Z",
            "until": "2027-11-23T12:00:00Z",
            "then": "free",
            "switch": "on",
            "switches": {"api": {"to": "off", "percent": 5}},
            "former": [{"name": "api", "until": "2026-12-01T00:00:00Z", "limit": "9/s", "by": ["customer"]}],
            "note": "a word for people",
        },
        "bob": "free",
    },
}
"""A document with all fields, each with a valid value."""

VALUES: Final[Table] = {
    "null": None,
    "truth": True,
    "whole": 5,
    "part": 1.5,
    "text": "no !such",
    "list": [1],
    "table": {"nonsense": 1},
}
"""One value of each type."""
_USERS, _ADA = "plans.free.limits.users", "customers.ada"
_FORMER = f"{_ADA}.former.0"
FITTING: Final[dict[str, str]] = {
    "unknown": "null",
    "plans": "",
    "plans.free": "",
    "plans.free.limits": "",
    "plans.free.limits.api": "",
    "plans.free.limits.parts.limit": "",
    "plans.free.limits.parts.algorithm": "null",
    "plans.free.limits.parts.slices": "null whole",
    "plans.free.limits.log.count_refused": "null truth",
    "plans.free.limits.bucket.initial": "null whole",
    "plans.free.limits.bucket.refill": "null",
    "plans.free.limits.month.algorithm": "null",
    "plans.free.limits.month.align": "null",
    "plans.free.limits.month.timezone": "null",
    f"{_USERS}.limit": "",
    f"{_USERS}.soft": "null",
    f"{_USERS}.max_debt": "null whole",
    f"{_USERS}.costs": "null table",
    f"{_USERS}.costs.GET": "whole",
    f"{_USERS}.by": "null",
    f"{_USERS}.switch": "null truth",
    f"{_USERS}.switch.to": "truth",
    f"{_USERS}.switch.percent": "null whole part",
    f"{_USERS}.switch.until": "null",
    "plans.trial.lasts": "whole part",
    "plans.trial.then": "",
    "customers": "null",
    _ADA: "",
    f"{_ADA}.plan": "",
    f"{_ADA}.limits": "null",
    f"{_ADA}.limits.api": "",
    f"{_ADA}.limits.log.limit": "",
    f"{_ADA}.since": "null",
    f"{_ADA}.until": "",
    f"{_ADA}.then": "",
    f"{_ADA}.switch": "null truth",
    f"{_ADA}.switches": "null",
    f"{_ADA}.switches.api": "truth",
    f"{_ADA}.former": "null",
    _FORMER: "",
    f"{_FORMER}.name": "",
    f"{_FORMER}.until": "",
    f"{_FORMER}.limit": "",
    f"{_FORMER}.by": "null",
    f"{_ADA}.note": "null text",
}
"""The values above that each field can have."""
RANGES: Final[list[tuple[str, Any]]] = [
    ("plans.free.limits.api", f"{10**12 + 1}/s"),
    ("plans.free.limits.api", "1/0s"),
    ("plans.free.limits.api", "1/3661 days"),
    ("plans.free.limits.parts.slices", 0),
    ("plans.free.limits.parts.slices", 1001),
    ("plans.free.limits.bucket.initial", -1),
    (f"{_USERS}.soft", 1.01),
    (f"{_USERS}.soft", -0.1),
    (f"{_USERS}.soft", "101%"),
    (f"{_USERS}.max_debt", -1),
    (f"{_USERS}.max_debt", 10**12 + 1),
    (f"{_USERS}.costs.GET", -1),
    (f"{_USERS}.costs.GET", 10**40),
    (f"{_USERS}.by", []),
    (f"{_USERS}.by", ["a", "b", "c", "d", "e", "f", "g", "h", "i"]),
    (f"{_USERS}.by", ["user", "user"]),
    (f"{_USERS}.switch.percent", -0.5),
    (f"{_USERS}.switch.percent", 100.5),
    ("plans.trial.lasts", 0),
    ("plans.trial.lasts", -1),
    ("plans.trial.lasts", 10**18),
    (f"{_ADA}.note", "x" * 1001),
]
"""Fields with values of the right type that are too large, too small, too many or too few."""
NEEDED: Final = (
    "plans",
    "plans.free.limits",
    "plans.free.limits.parts.limit",
    f"{_USERS}.switch.to",
    f"{_ADA}.plan",
    f"{_ADA}.limits.log.limit",
    f"{_FORMER}.name",
    f"{_FORMER}.until",
    f"{_FORMER}.limit",
)
"""Fields that must be present."""
PLACES: Final = ("", "plans.free", "plans.free.limits.parts", f"{_USERS}.switch", _ADA, _FORMER, f"{_ADA}.limits.log")
"""The tables whose possible fields are known."""


@dataclass(frozen=True)
class Broken:
    """An invalid file."""

    case: str
    name: str
    written: bytes
    field: str = ""
    """The wrong field, or one above it; empty if the whole file is wrong."""


def put(path: str, value: Any) -> Table:
    """Returns the document with another value at one place; without the place if there is no value."""
    table = deepcopy(WHOLE)
    at: Any = table
    *above, last = path.split(".")
    for name in above:
        at = at[int(name) if isinstance(at, list) else name]
    place: Any = int(last) if isinstance(at, list) else last
    if value is ...:
        del at[place]
    else:
        at[place] = value
    return table


def misshapen() -> Iterator[tuple[str, str, Table]]:
    """Yields documents of which one field alone is wrong: the case, the field, the document."""
    for path, fitting in FITTING.items():
        for kind, value in VALUES.items():
            if kind not in fitting.split():
                yield f"{path} is {kind}", path, put(path, value)
    for path, value in RANGES:
        yield f"{path} is {str(value)[:20]!r}", path, put(path, value)
    for path in NEEDED:
        yield f"{path} is missing", path, put(path, ...)
    for path in PLACES:
        yield f"{path or 'the document'} has an unknown field", path, put(f"{path}.nonsense".lstrip("."), 5)


def broken() -> Iterator[Broken]:
    """Yields invalid files in every language."""
    for language in LANGUAGES:
        for case, field, table in misshapen():
            if language != "toml" or "null" not in case:  # TOML has no null
                yield Broken(f"{language}: {case}", f"plans.{language}", _in(language, table), field)
    yield from _unreadable()


def _in(language: str, table: Table) -> bytes:
    if language == "json":
        return json.dumps(table, indent=2).encode()
    if language == "yaml":
        dumped: str = yaml.safe_dump(table, sort_keys=False)
        return dumped.encode()
    return written_table(table, language).encode()


_BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n"
    for before, name in zip("abcdefghi", "bcdefghij", strict=True)
)
_ALLOWANCE = "plans: {free: {limits: {api: 5/s}}}\n"
_DEPTHS = (60, 900, 20_000)
TEXTS: Final[dict[str, list[str]]] = {
    "yaml": [
        "plans: [",
        "plans: {free: {limits: {api: 5/s}}",
        "plans:\n\t- x",
        "plans: free: 5",
        "plans: 'free",
        'plans: "\\q"',
        "- plans",
        "plans",
        "5",
        "",
        "# nothing\n",
        "null",
        "---\nplans: {}\n---\nplans: {}\n",
        "plans: !!python/object/apply:os.system [ls]",
        "plans: !secret x",
        "plans: *nothing",
        "plans: &a [*a]",
        "plans: &a {free: *a}",
        f"{_BOMB}plans: *j\n",
        f"{_BOMB}plans: {{free: *j}}\n",
        "x: &x {y: 1}\nplans: {<<: *x, free: {limits: {api: 5/s}}}\n",
        "plans: {<<: 5}",
        "? [plans]\n: 5",
        "5: x",
        "on: x",
        f"{_ALLOWANCE}{_ALLOWANCE}",
        "plans: {free: {limits: {api: 5/s}}, free: {limits: {api: 5/s}}}",
        "plans: {free: {limits: {api: 5/s, api: 6/s}}}",
        "plans: {1: {limits: {api: 5/s}}}",
        f"{_ALLOWANCE}customers: {{5: free}}",
        f"{_ALLOWANCE}customers: {{ada: {{plan: free, since: 2026-99-99}}}}",
        f"{_ALLOWANCE}customers: {{ada: {{plan: free, note: 2026-11-23}}}}",
        "plans: {free: {limits: {api: {limit: 5/s, slices: " + "9" * 5000 + "}}}}",
        "plans: {free: {limits: {api: {limit: 5/s, soft: .nan}}}}",
        "plans: {free: {limits: {api: {limit: 5/s, soft: .inf}}}}",
        "plans: {free: {limits: {api: !!binary aGk=}}}",
        "plans: {free: {limits: {api: !!set {a}}}}",
        "plans: {free: {limits: {api: 1:30}}}",
        "plans: {free: {limits: {api: \x00}}}",
        "%YAML 9.9\n---\nplans: {}",
        *("plans: " + "[" * depth for depth in _DEPTHS),
        *("plans: " + "[" * depth + "]" * depth for depth in _DEPTHS),
        *("".join(f"{' ' * level}a:\n" for level in range(depth)) for depth in (60, 900)),
    ],
    "json": [
        "",
        "{",
        "{}x",
        '{"plans": }',
        '{"plans": {},}',
        "{plans: {}}",
        "{'plans': {}}",
        "[]",
        "5",
        "null",
        '"plans"',
        '{"plans": {"free": {"limits": {"api": "5/s"}}}, "plans": {}}',
        '{"plans": {"free": {"limits": {"api": "5/s", "api": "6/s"}}}}',
        '{"plans": {"free": {"limits": {"api": {"limit": "5/s", "soft": NaN}}}}}',
        '{"plans": {"free": {"limits": {"api": {"limit": "5/s", "soft": Infinity}}}}}',
        '{"plans": {"free": {"limits": {"api": {"limit": "5/s", "slices": ' + "9" * 5000 + "}}}}}",
        '{"plans": {"free": {"limits": {"api": {"limit": "5/s", "slices": 1e999}}}}}',
        '{"plans": {"fr\\u0000ee": {"limits": {"api": "5/s"}}}}',
        '{"plans": {"\\ud800": {"limits": {"api": "5/s"}}}}',
        '{"plans": {"free": {"limits": {"api": "5\t/s"}}}}',
        '{"plans": // none\n {}}',
        "plans: {}",
        *('{"plans": ' + "[" * depth for depth in _DEPTHS),
        *('{"plans": ' + '{"a": ' * depth + "1" + "}" * depth + "}" for depth in _DEPTHS),
    ],
    "toml": [
        "",
        "plans",
        "plans =",
        "[plans",
        "[plans]\n[plans]",
        "plans = 5\nplans = 6",
        "plans.free.limits.api = '5/s'\nplans.free.limits.api = '6/s'",
        "plans = { free = { limits = { api = '5/s' } }",
        "plans = 5/s",
        "plans = 'free",
        'plans = "\\q"',
        "plans = nan",
        "plans = 1979-99-99",
        "[[plans]]\nfree = 5",
        "[plans.free.limits]\napi = 07:32:00",
        "[plans.free.limits]\napi = { limit = '5/s', slices = " + "9" * 5000 + " }",
        "[plans.free.limits]\napi = { limit = '5/s', soft = inf }",
        "plans: {}",
        "\x00",
        *("plans = " + "[" * depth for depth in _DEPTHS),
        *("plans = " + "[" * depth + "]" * depth for depth in _DEPTHS),
        *("[" + ".".join(["a"] * depth) + "]" for depth in (60, 900)),
    ],
}
"""Texts that are not of their language, or stand for no document."""


def _unreadable() -> Iterator[Broken]:
    for language, texts in TEXTS.items():
        for number, text in enumerate(texts):
            yield Broken(f"{language} text {number}: {text[:30]!r}", f"plans.{language}", text.encode())
    good = {language: _in(language, WHOLE) for language in LANGUAGES}
    for language, written in good.items():
        for case, bytes_ in {
            "utf-16": written.decode().encode("utf-16"),
            "utf-32": written.decode().encode("utf-32"),
            "latin-1": written + "é".encode("latin-1"),
            "half a character": written + "é".encode()[:1],
            "a zero": written + b"\x00",
            "noise": bytes(range(256)),
        }.items():
            yield Broken(f"{language} in {case}", f"plans.{language}", bytes_)
