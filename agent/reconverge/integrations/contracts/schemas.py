"""The JSON Schemas of what the API takes and gives: documents, plans, customers, switches, changes, explanations."""

# What contracts are is said once, in `contracts/schema.py`, whose parts stand here under the names that clients made
# of the OpenAPI document give to their types. A schema cannot say all of it: that a plan exists, say, or which setting
# goes with which algorithm. What follows the schema and is wrong all the same is answered 422, with the field. Tests
# compare the fields with those of the format, and have answers checked against these schemas.

from __future__ import annotations

from typing import Any, Final, cast

from reconverge.contracts.document import PLANS_MAX, WORDS
from reconverge.contracts.schema import schema

Schema = dict[str, Any]
VERSION_MAX: Final = 2**53
"""The largest whole number that every reader of JSON keeps."""
FACTS_GIVEN_MAX: Final = 32
"""Facts of a request that may be given: those of several limits."""
FACT_NAME_PATTERN: Final = "^[A-Za-z_][A-Za-z0-9_]{0,63}$"
NOT_FACTS: Final = ("customer", "self")
"""No names of facts: facts are handed on as arguments by their names, beside these two."""
FACT_LENGTH_MAX: Final = 512
"""In characters, of the value of one fact."""
_NAMES: Final = {
    "plan": "Plan",
    "plan_name": "Name",
    "plan_limit": "LimitOfPlan",
    "plan_limit_table": "PlanLimit",
    "override": "LimitOfCustomer",
    "override_table": "LimitTable",
    "customer": "Contract",
    "customer_table": "Customer",
    "identity": "Identity",
    "former": "Former",
    "switching": "Switch",
    "switch_table": "SwitchTable",
    "word": "Word",
    "facts": "CountedBy",
    "fact": "FactName",
    "limit_string": "LimitString",
    "duration": "Duration",
    "moment": "Moment",
}
"""The parts of the contracts' own schema, and what they are called here."""


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


def _moved(part: Any) -> Any:
    """A part of the contracts' own schema, with its references as an OpenAPI document has them."""
    if isinstance(part, dict):
        members = cast("dict[str, Any]", part)
        if "$ref" in members:
            return ref(_NAMES[members["$ref"].removeprefix("#/$defs/")])
        return {name: _moved(each) for name, each in members.items()}
    if isinstance(part, list):
        parts: list[Any] = part
        return [_moved(each) for each in parts]
    return part


def _of_contracts() -> dict[str, Schema]:
    """Of a document and all parts of it, as `contracts/schema.py` has them."""
    whole = schema()
    parts = whole.pop("$defs")
    del whole["$schema"], whole["title"]
    return {"Document": _moved(whole), **{name: _moved(parts[part]) for part, name in _NAMES.items()}}


_VERSION: Final[Schema] = {"type": "integer", "minimum": 0, "maximum": VERSION_MAX}


def _of_changes() -> dict[str, Schema]:
    """Schemas of contracts and their versions in the API."""
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
    """Schemas of customers' standing in the API."""
    number = {"type": "number", "minimum": 0}
    whole = {"type": "integer", "minimum": 0}
    names = {"type": "array", "items": {"type": "string"}}
    yes = {"type": "boolean"}
    wait = _optional({**number, "description": "In seconds; null if no moment is known."})
    limit_members: dict[str, Schema] = {
        "name": ref("Name"), "allowed": yes, "quota": whole, "window_s": number, "at_once": whole, "in_force": whole,
        "used": whole, "remaining": whole, "lines": whole, "refill_s": number, "wait_s": wait, "by": names,
        "switch": {"enum": [*WORDS]}, "certain": yes, "former": yes,
    }  # fmt: skip
    explained: dict[str, Schema] = {
        "customer": ref("Identity"), "plan": {"type": "string"}, "allowed": yes, "refused_by": names, "wait_s": wait,
        "limits": {"type": "array", "items": ref("LimitExplained")}, "sentence": {"type": "string"},
        "fleetwide": {**yes, "description": "Whether use is that of all nodes; else it is what one of them knows."},
        "problem": _text("Why the hub has not told it, if it was asked."),
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


def _of_following() -> dict[str, Schema]:
    """Schemas of the API's own node."""
    whole = {"type": "integer", "minimum": 0}
    counts = {"type": "object", "additionalProperties": whole}
    return {
        "Status": table(
            "What one node knows of the contracts of its fleet.",
            ["version", "follows", "accepted", "rejected", "failures", "expires_in_s", "restored"],
            version=_optional({**_VERSION, "description": "Of the contracts that this node obeys; null if unknown."}),
            follows={"type": "boolean", "description": "Whether it obeys those that the hub keeps."},
            accepted={**whole, "description": "How often something new was obeyed."},
            rejected={**counts, "description": "How often something new was not, by reason: forged, old, expired, ..."},
            failures={**counts, "description": "How often nothing could be read or written, by kind."},
            expires_in_s=_optional({"type": "number", "description": "Until nodes that start reject them; or null."}),
            restored={**whole, "description": "How often this node has told a hub again that had lost them."},
        )
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
    **_of_contracts(),
    **_of_changes(),
    **_of_explaining(),
    **_of_following(),
    "Problem": _problem(),
}
"""By the names under which an OpenAPI document has them."""
