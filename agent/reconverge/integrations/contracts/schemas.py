"""The JSON Schemas of what the API takes and gives: documents, plans, customers, switches, changes, explanations."""

# These say in the words of JSON Schema (2020-12, as OpenAPI 3.1 has it) what `contracts/document.py` checks. A schema
# cannot say all of it: that a plan exists, how a limit string is written, which setting goes with which algorithm. What
# follows the schema and is wrong all the same is answered 422, with the field. The tests compare the fields that are
# listed here with those of the format, and have answers checked against these schemas.

from __future__ import annotations

from typing import Any, Final

from reconverge.contracts.document import (
    CUSTOMERS_MAX,
    FACTS_MAX,
    FORMER_MAX,
    IDENTITY_BYTES_MAX,
    LASTS_MAX_S,
    LIMITS_MAX,
    NOTE_LENGTH_MAX,
    PLANS_MAX,
    WORDS,
)
from reconverge.limit.checks import KINDS_MAX, NAME_LENGTH_MAX
from reconverge.limit.limit import ALGORITHMS, ALIGNMENTS, QUOTA_MAX, REFILLS, SLICES_MAX

Schema = dict[str, Any]
VERSION_MAX: Final = 2**53
"""The largest whole number that every reader of JSON keeps."""
FACTS_GIVEN_MAX: Final = 32
"""Facts of a request that may be given: those of several limits, of `FACTS_MAX` each."""
FACT_NAME_PATTERN: Final = "^[A-Za-z_][A-Za-z0-9_]{0,63}$"
NOT_FACTS: Final = ("customer", "self")
"""No names of facts: facts are handed on as arguments by their names, beside these two."""
FACT_LENGTH_MAX: Final = 512
"""In characters, of the value of one fact."""
_LIMIT_STRING_LENGTH_MAX: Final = 1000


def ref(name: str) -> Schema:
    """Where the schema of that name is."""
    return {"$ref": f"#/components/schemas/{name}"}


def table(description: str, required: list[str], **properties: Schema) -> Schema:
    """An object with these members and no others."""
    said = {"type": "object", "description": description, "properties": properties, "additionalProperties": False}
    return {**said, "required": required} if required else said


def _some(of: Schema, most: int, *, least: int = 0, names: Schema | None = None) -> Schema:
    """An object whose members are of one kind, each by its name."""
    names = names or ref("Name")
    return {
        "type": "object",
        "additionalProperties": of,
        "propertyNames": names,
        "minProperties": least,
        "maxProperties": most,
    }


def _optional(*schemas: Schema) -> Schema:
    return {"anyOf": [*schemas, {"type": "null"}]}


def _text(description: str, **more: Any) -> Schema:
    return {"type": "string", "description": description, **more}


_LIMIT_FIELDS: Final[dict[str, Schema]] = {
    "algorithm": {"enum": [*ALGORITHMS, None]},
    "slices": _optional({"type": "integer", "minimum": 1, "maximum": SLICES_MAX}),
    "count_refused": _optional({"type": "boolean"}),
    "align": {"enum": [*ALIGNMENTS, None]},
    "timezone": _optional({"type": "string", "minLength": 1, "maxLength": NAME_LENGTH_MAX}),
    "initial": _optional({"type": "integer", "minimum": 0, "maximum": QUOTA_MAX}),
    "refill": {"enum": [*REFILLS, None]},
    "soft": _optional({"type": "number", "minimum": 0, "maximum": 1}),
    "max_debt": _optional({"type": "integer", "minimum": 0, "maximum": QUOTA_MAX}),
    "costs": _optional(
        _some({"type": "integer", "minimum": 0, "maximum": QUOTA_MAX}, KINDS_MAX, least=1, names={"minLength": 1})
    ),
}
_BY: Final = _optional(
    {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$"},
    {
        "type": "array",
        "items": {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$"},
        "minItems": 1,
        "maxItems": FACTS_MAX,
        "uniqueItems": True,
    },
)
_MAY_SWITCH: Final = _optional(ref("Switch"))
_MAY_MOMENT: Final = _optional(ref("Moment"))
_MAY_NAME: Final = _optional(ref("Name"))


def _of_plans() -> dict[str, Schema]:
    """Of a document, of what its plans say, and of the words that all of it uses."""
    return {
        "Document": table(
            "All contracts of a fleet.",
            ["plans"],
            plans=_some(ref("Plan"), PLANS_MAX),
            customers=_optional(_some(ref("Customer"), CUSTOMERS_MAX, names=ref("Identity"))),
            unknown=_text("The plan of customers that are not named, or `refused`.", default="refused"),
        ),
        "Plan": table(
            "Limits that many customers have.",
            ["limits"],
            limits=_some({"anyOf": [ref("LimitString"), ref("PlanLimit")]}, LIMITS_MAX, least=1),
            lasts=_optional(
                {"type": "number", "exclusiveMinimum": 0, "maximum": LASTS_MAX_S},
                _text("An ISO 8601 duration.", pattern="^[Pp]", examples=["P14D"]),
            ),
            then=_MAY_NAME,
        ),
        "Moment": _text("In ISO 8601, from 1970 to 9987; UTC if no offset is said.", format="date-time"),
        "Name": _text("Of a plan or a limit.", pattern=f"^[A-Za-z0-9_./-]{{1,{NAME_LENGTH_MAX}}}$"),
        "Identity": _text(f"Names a customer; at most {IDENTITY_BYTES_MAX} bytes.", minLength=1, pattern="^[^\\x00]+$"),
        "LimitString": _text(
            "A quota and its window.",
            minLength=1,
            maxLength=_LIMIT_STRING_LENGTH_MAX,
            examples=["50/second", "5 per 10 seconds", "10/s burst 20"],
        ),
        "LimitTable": table("A limit, with what no limit string can say.", ["limit"], limit=ref("LimitString"))
        | {"properties": {"limit": ref("LimitString"), **_LIMIT_FIELDS}},
        "PlanLimit": table("A limit of a plan.", ["limit"])
        | {"properties": {"limit": ref("LimitString"), "by": _BY, "switch": _MAY_SWITCH, **_LIMIT_FIELDS}},
    }


def _of_customers() -> dict[str, Schema]:
    """Of what a document says of customers."""
    either = {"anyOf": [ref("LimitString"), ref("LimitTable")]}
    return {
        "Customer": table(
            "The contract of one customer.",
            ["plan"],
            plan=ref("Name"),
            limits=_optional(_some(either, LIMITS_MAX)),
            since=_MAY_MOMENT,
            until=_MAY_MOMENT,
            then=_MAY_NAME,
            switch=_MAY_SWITCH,
            switches=_optional(_some(ref("Switch"), LIMITS_MAX)),
            former=_optional({"type": "array", "items": ref("Former"), "maxItems": FORMER_MAX}),
            note=_text("For people.", maxLength=NOTE_LENGTH_MAX),
        ),
        "Contract": {
            "description": "The contract of one customer, or the name of a plan alone.",
            "anyOf": [ref("Customer"), ref("Name")],
        },
        "Former": table(
            "A limit of a contract that has changed, which holds until its use has stopped counting.",
            ["name", "until", "limit"],
        )
        | {
            "properties": {
                "name": ref("Name"),
                "until": ref("Moment"),
                "by": _BY,
                "limit": ref("LimitString"),
                **_LIMIT_FIELDS,
            }
        },
        "Switch": {
            "description": "To what something is switched, for how many of its keys, and for how long.",
            "anyOf": [
                {"enum": [*WORDS]},
                {"type": "boolean"},
                table(
                    "With a share of the keys, or an end.",
                    ["to"],
                    to={"enum": [*WORDS, True, False]},
                    percent={"type": "number", "minimum": 0, "maximum": 100, "default": 100},
                    until=_MAY_MOMENT,
                ),
            ],
        },
    }


_VERSION: Final[Schema] = {"type": "integer", "minimum": 0, "maximum": VERSION_MAX}


def _of_changes() -> dict[str, Schema]:
    """Of what the API says of contracts and their versions."""
    contract = table("", ["identity", "contract"], identity=ref("Identity"), contract=ref("Customer"))
    following = {**_optional(ref("Identity")), "description": "The `after` of the next page; null on the last."}
    return {
        "Contracts": table(
            "One page of the contracts, by identity.",
            ["version", "contracts", "next"],
            version=_VERSION,
            contracts={"type": "array", "items": contract},
            next=following,
        ),
        "Plans": table(
            "All plans.",
            ["version", "unknown", "plans"],
            version=_VERSION,
            unknown={"type": "string"},
            plans=_some(ref("Plan"), PLANS_MAX),
        ),
        "Version": table("The version of the contracts after a change.", ["version"], version=_VERSION),
        "Rollback": table("The version to go back to.", ["version"], version={**_VERSION, "minimum": 1}),
        "History": table("Changes, the newest first.", ["changes"], changes={"type": "array", "items": ref("Change")}),
        "Change": table(
            "One change of the contracts.",
            ["version", "by", "when", "identity", "before", "after"],
            version=_VERSION,
            by=_text("The name of the token that it was made with, or what else has made it."),
            when=ref("Moment"),
            identity={**_optional(ref("Identity")), "description": "Null if it is about the whole document."},
            before={"description": "What the document said of that before; null if nothing."},
            after={"description": "What it says since; null if nothing."},
        ),
    }


def _of_explaining() -> dict[str, Schema]:
    """Of what the API says of how customers stand."""
    number = {"type": "number", "minimum": 0}
    whole = {"type": "integer", "minimum": 0}
    names = {"type": "array", "items": {"type": "string"}}
    yes = {"type": "boolean"}
    wait = _optional({**number, "description": "In seconds; null if no moment is known."})
    limit_members: dict[str, Schema] = {
        "name": ref("Name"), "allowed": yes, "quota": whole, "window_s": number, "at_once": whole, "used": whole,
        "remaining": whole, "refill_s": number, "wait_s": wait, "by": names, "switch": {"enum": [*WORDS]},
        "certain": yes, "former": yes,
    }  # fmt: skip
    explained: dict[str, Schema] = {
        "customer": ref("Identity"), "plan": {"type": "string"}, "allowed": yes, "refused_by": names, "wait_s": wait,
        "limits": {"type": "array", "items": ref("LimitExplained")}, "sentence": {"type": "string"},
    }  # fmt: skip
    facts = {
        "type": "object",
        "additionalProperties": {"type": "string", "minLength": 1, "maxLength": FACT_LENGTH_MAX},
        "propertyNames": {"pattern": FACT_NAME_PATTERN, "not": {"enum": [*NOT_FACTS]}},
        "maxProperties": FACTS_GIVEN_MAX,
    }
    return {
        "Facts": facts,
        "Reset": table("Facts of a request by which limits count.", [], facts=ref("Facts")),
        "LimitExplained": table("How a customer stands with one limit.", list(limit_members), **limit_members),
        "Forgotten": table(
            "What was erased of a customer.",
            ["version", "complete", "cells", "kept", "rows", "problem"],
            version={**_VERSION, "description": "Of the contracts since."},
            complete={**yes, "description": "Whether nothing is left of it, as far as it could be looked for."},
            cells={**whole, "description": "Keys of limits that were taken from the hub."},
            kept={**whole, "description": "Keys that stay, because nodes use them or do not answer; ask again."},
            rows={**whole, "description": "Rows and events of usage that were taken from the hub."},
            problem={"type": "string", "description": "What could not be done; empty if all was."},
        ),
        "Explanation": table("Whether a customer may go on, why not, and when.", list(explained), **explained),
    }


def _problem() -> Schema:
    wrong = table("", ["pointer", "detail"], pointer=_text("A JSON Pointer into the body."), detail={"type": "string"})
    return table(
        "What is wrong, as RFC 9457 has it.",
        ["type", "title", "status", "detail"],
        type={"type": "string", "format": "uri-reference"},
        title={"type": "string"},
        status={"type": "integer", "minimum": 400, "maximum": 599},
        detail={"type": "string"},
        errors={"type": "array", "items": wrong},
        parameter=_text("The parameter of the query that is wrong."),
        version={**_VERSION, "description": "The version that was found instead."},
        kind=_text("The kind of a failure of the hub, such as `timeout`."),
        applied={"type": ["boolean", "null"], "description": "Whether the change was made; null if that is not known."},
    )


SCHEMAS: Final[dict[str, Schema]] = {
    **_of_plans(),
    **_of_customers(),
    **_of_changes(),
    **_of_explaining(),
    "Problem": _problem(),
}
"""By the names under which an OpenAPI document has them."""
