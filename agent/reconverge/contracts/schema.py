"""The JSON Schema (2020-12) of a contracts document, for editors and for programs that write one."""

# Theory of operation.
#
# The schema is made of the constants that `checked` goes by, so a bound has one value in both. Whatever the schema
# refuses `checked` refuses. The schema knows types, names, ranges and what must be there; what is about several fields,
# such as whether a plan exists or a burst goes with the algorithm, `checked` alone knows.
#
# A field that may be left out may be null, too: an empty value in YAML is null, and says nothing.

from __future__ import annotations

from typing import Any, Final

from reconverge.clock import SECOND_NS
from reconverge.contracts.model import (
    CUSTOMERS_MAX,
    FACTS_MAX,
    FORMER_MAX,
    IDENTITY_BYTES_MAX,
    LASTS_MAX_S,
    LIMITS_MAX,
    NOTE_LENGTH_MAX,
    PLANS_MAX,
    REFUSED,
    WORDS,
)
from reconverge.limit.checks import KINDS_MAX, NAME_LENGTH_MAX, SOFT_MAX
from reconverge.limit.grammar import TEXT_LENGTH_MAX
from reconverge.limit.limit import (
    ALIGNMENTS,
    KNOWN_ALGORITHMS,
    QUOTA_MAX,
    REFILLS,
    SLICES_MAX,
    SLOT_LEASE_MAX_NS,
)

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_NAME: Final = rf"^[A-Za-z0-9_./-]{{1,{NAME_LENGTH_MAX}}}$"
_ZONE: Final = rf"^[A-Za-z0-9_+/-]{{1,{NAME_LENGTH_MAX}}}$"
_LIMIT_STRING: Final = (
    r"^\s*[0-9]+\s*((/|[Pp][Ee][Rr])\s*[0-9A-Za-z]|[Ii][Nn]\s+[Ff][Ll][Ii][Gg][Hh][Tt]|[Cc][Oo][Nn][Cc][Uu][Rr])"
)
_PERCENTAGE: Final = r"^\s*[0-9]+(\.[0-9]+)? ?%\s*$"
_DURATION: Final = r"^[Pp][0-9Tt]"
_MOMENT: Final = r"^[0-9]{4}"
_FACT: Final = r"^[^\x00-@\[-\^`{-\x7f][^\x00-/:-@\[-\^`{-\x7f]*$"
"""Of ASCII letters, digits and underlines alone; letters beyond ASCII are as Python has them."""


def schema() -> dict[str, Any]:
    """The schema of a whole document, with the parts of it under `$defs`."""
    return {
        "$schema": DIALECT,
        "title": "Contracts of a fleet",
        "description": "Plans, and the customers that are on them.",
        **_table(
            {
                "plans": _entries(_NAME, "plan", PLANS_MAX, least=1)
                | _says("Limits that many customers have, by name."),
                "customers": _maybe(
                    {
                        "type": "object",
                        "maxProperties": CUSTOMERS_MAX,
                        "propertyNames": _of("identity"),
                        "additionalProperties": _of("customer"),
                    }
                )
                | _says("Contracts by the identity of the customer."),
                "unknown": _maybe({"type": "string", "anyOf": [{"const": REFUSED}, {"pattern": _NAME}]})
                | _says("The plan of customers that are not named; by default their requests are refused."),
            },
            needed=["plans"],
        ),
        "$defs": {**_parts_of_plans(), **_parts_of_customers(), **_values()},
    }


def _parts_of_plans() -> dict[str, Any]:
    plain = _plain_fields()
    return {
        "plan": _table(
            {
                "limits": _entries(_NAME, "plan_limit", LIMITS_MAX, least=1),
                "lasts": _maybe(_of("duration")) | _says("From a customer's `since` on; `then` follows."),
                "then": _maybe(_of("plan_name")) | _says("The plan after that."),
            },
            needed=["limits"],
        )
        | _says("Limits that many customers have."),
        "plan_name": {"type": "string", "pattern": _NAME},
        "plan_limit": {"oneOf": [_of("limit_string"), _of("plan_limit_table")]},
        "plan_limit_table": _table(
            {**plain, "by": _maybe(_of("facts")), "switch": _maybe(_of("switching"))}, needed=["limit"]
        )
        | _says("A limit of a plan."),
        "override": {"oneOf": [_of("limit_string"), _of("override_table")]},
        "override_table": _table(plain, needed=["limit"]) | _says("A limit, with what no limit string can say."),
    }


def _parts_of_customers() -> dict[str, Any]:
    switches = _maybe(_entries(_NAME, "switching", LIMITS_MAX))
    return {
        "customer": {"oneOf": [_of("plan_name"), _of("customer_table")]}
        | _says("The contract of one customer, or the name of a plan alone."),
        "customer_table": _table(
            {
                "plan": _of("plan_name"),
                "limits": _maybe(_entries(_NAME, "override", LIMITS_MAX))
                | _says("What this customer has in place of the plan's limits of these names."),
                "since": _maybe(_of("moment")) | _says("When the plan began; a plan that lasts needs it."),
                "until": _maybe(_of("moment")) | _says("When the contract ends, and the plan `then` begins."),
                "then": _maybe(_of("plan_name")),
                "switch": _maybe(_of("switching")) | _says("Of the whole contract."),
                "switches": switches | _says("Of single limits."),
                "former": _maybe({"type": "array", "maxItems": FORMER_MAX, "items": _of("former")})
                | _says("Limits that have changed and still hold; what changes contracts writes them."),
                "note": _maybe({"type": "string", "maxLength": NOTE_LENGTH_MAX}) | _says("For people."),
            },
            needed=["plan"],
        )
        | _says("The contract of one customer."),
        "identity": {"type": "string", "minLength": 1, "maxLength": IDENTITY_BYTES_MAX, "pattern": "^[^\\u0000]*$"}
        | _says(f"Names a customer; at most {IDENTITY_BYTES_MAX} bytes."),
        "former": _table(
            {
                "name": {"type": "string", "pattern": _NAME},
                "until": _of("moment"),
                "by": _maybe(_of("facts")),
                **_plain_fields(),
            },
            needed=["name", "until", "limit"],
        )
        | _says("A limit of a contract that has changed, which holds until its use has stopped counting."),
    }


def _values() -> dict[str, Any]:
    return {
        "switching": {"oneOf": [_of("word"), _of("switch_table")]}
        | _says("To what something is switched, for how many of its keys, and for how long."),
        "switch_table": _table(
            {
                "to": _of("word"),
                "percent": _maybe({"type": "number", "minimum": 0, "maximum": 100})  # all keys
                | _says("Of the keys, by their hash; the others are on."),
                "until": _maybe(_of("moment")) | _says("When it is on again."),
            },
            needed=["to"],
        ),
        "word": {"enum": [*WORDS, True, False]} | _says("YAML reads on and off as true and false."),
        "facts": {
            "oneOf": [
                _of("fact"),
                {"type": "array", "minItems": 1, "maxItems": FACTS_MAX, "uniqueItems": True, "items": _of("fact")},
            ]
        }
        | _says("The facts of a request by which a limit counts; by default [customer]."),
        "fact": {"type": "string", "pattern": _FACT},
        "limit_string": {"type": "string", "maxLength": TEXT_LENGTH_MAX, "pattern": _LIMIT_STRING}
        | _says(
            "How much in what time: 100/minute, 5 per 10 seconds, 20/PT10M, 10/s burst 20. Or at once: 20 in flight."
        ),
        "duration": {
            "anyOf": [
                {"type": "string", "pattern": _DURATION},
                {"type": "number", "exclusiveMinimum": 0, "maximum": LASTS_MAX_S},
            ]
        }
        | _says("Seconds, or ISO 8601: P14D."),
        "moment": {"type": "string", "pattern": _MOMENT} | _says("ISO 8601, UTC unless it says otherwise."),
    }


def _plain_fields() -> dict[str, Any]:
    """The limit string, and each field of a limit that can be said beside it."""
    return {
        "limit": _of("limit_string"),
        "algorithm": _maybe({"enum": list(KNOWN_ALGORITHMS)}),
        "slices": _maybe({"type": "integer", "minimum": 1, "maximum": SLICES_MAX}),
        "count_refused": _maybe({"type": "boolean"}),
        "align": _maybe({"enum": list(ALIGNMENTS)}),
        "timezone": _maybe({"type": "string", "pattern": _ZONE}),
        "initial": _maybe({"type": "integer", "minimum": 0, "maximum": QUOTA_MAX}),
        "refill": _maybe({"enum": list(REFILLS)}),
        "soft": _maybe(
            {
                "anyOf": [
                    {"type": "number", "minimum": 0, "maximum": SOFT_MAX},
                    {"type": "string", "pattern": _PERCENTAGE},
                ]
            }
        ),
        "max_debt": _maybe({"type": "integer", "minimum": 0, "maximum": QUOTA_MAX}),
        "costs": _maybe(
            {
                "type": "object",
                "minProperties": 1,
                "maxProperties": KINDS_MAX,
                "propertyNames": {"minLength": 1},
                "additionalProperties": {"type": "integer", "minimum": 0, "maximum": QUOTA_MAX},
            }
        ),
        "lease": _maybe({"type": "number", "exclusiveMinimum": 0, "maximum": SLOT_LEASE_MAX_NS / SECOND_NS})
        | _says("Of a limit on what is in progress: for how many seconds a silent node's slots stay taken."),
    }


def _table(fields: dict[str, Any], *, needed: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": fields, "required": needed, "additionalProperties": False}


def _entries(name: str, part: str, most: int, *, least: int = 0) -> dict[str, Any]:
    return {
        "type": "object",
        "minProperties": least,
        "maxProperties": most,
        "propertyNames": {"pattern": name},
        "additionalProperties": _of(part),
    }


def _of(part: str) -> dict[str, Any]:
    return {"$ref": f"#/$defs/{part}"}


def _maybe(kind: dict[str, Any]) -> dict[str, Any]:
    return {"oneOf": [kind, {"type": "null"}]}


def _says(text: str) -> dict[str, Any]:
    return {"description": text}
