"""The models of the API's requests and responses; those of contracts themselves are in `contracts/format.py`."""

from __future__ import annotations

from typing import Annotated, Any, Final

from reconverge.contracts import format as written
from reconverge.contracts.model import PLANS_MAX
from reconverge.errors import MissingExtra
from reconverge.integrations.contracts.reading import VERSION_MAX

try:
    from pydantic import AfterValidator, BaseModel, ConfigDict, Field
except ModuleNotFoundError as error:
    raise MissingExtra("the API of contracts", error.name or "pydantic", "api") from error

FACTS_GIVEN_MAX: Final = 32
"""The most facts of a request; several limits may each need some."""
FACT_LENGTH_MAX: Final = 512
"""The longest value of a fact, in characters."""
NOT_FACTS: Final = ("customer", "self")
"""Names that no fact may have, because facts are passed to functions as keyword arguments beside these two."""

EXAMPLES: Final[dict[str, Any]] = {
    "Contract": {"plan": "pro", "limits": {"burst": "800/second"}, "note": "until the fair is over"},
    "Document": {
        "unknown": "free",
        "plans": {
            "free": {"limits": {"burst": "50/second", "daily": {"limit": "1000/day", "algorithm": "fixed-window"}}},
            "pro": {"limits": {"burst": "500/second", "by-user": {"limit": "5/minute", "by": ["customer", "user"]}}},
            "trial": {"limits": {"burst": "500/second"}, "lasts": "P14D", "then": "free"},
        },
        "customers": {
            "acme": {"plan": "pro", "limits": {"burst": "800/second"}},
            "globex": {"plan": "trial", "since": "2026-11-23T12:00:00Z", "switch": "shadow"},
        },
    },
    "Rollback": {"version": 1},
    "Reset": {"facts": {"user": "ada"}},
}
"""Examples of bodies. Sent in this order, all of them succeed."""


def _fact_name(name: str) -> str:
    if name in NOT_FACTS:
        raise written.wrong(f"{name!r} cannot be given as a fact, as the path names the customer; leave it out")
    return name


FactName = Annotated[
    str,
    Field(pattern="^[A-Za-z_][A-Za-z0-9_]{0,63}$", json_schema_extra={"not": {"enum": [*NOT_FACTS]}}),
    AfterValidator(_fact_name),
]
Facts = Annotated[
    dict[FactName, Annotated[str, Field(min_length=1, max_length=FACT_LENGTH_MAX)]], Field(max_length=FACTS_GIVEN_MAX)
]
Count = Annotated[int, Field(ge=0)]
VersionNumber = Annotated[int, Field(ge=0, le=VERSION_MAX)]


class Part(BaseModel):
    """The base class of the API's objects, which have exactly the declared members."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Version(Part):
    """The version of the contracts after a change."""

    version: VersionNumber


class Rollback(Part):
    """The version whose contracts are restored."""

    version: Annotated[int, Field(ge=1, le=VERSION_MAX)]


class Reset(Part):
    """The facts, such as a user, whose use is reset: some limits count by facts besides the customer."""

    facts: Facts = Field(default_factory=dict)


class Entry(Part):
    """A customer with its contract."""

    identity: written.Identity
    contract: written.Customer


class Contracts(Part):
    """One page of the contracts, in order of the customers' identities."""

    version: VersionNumber
    contracts: list[Entry]
    next: written.Identity | None = Field(description="The parameter `after` for the next page; null on the last page.")


class Plans(Part):
    """All plans, with the version of the contracts."""

    version: VersionNumber
    unknown: str
    plans: Annotated[dict[written.Name, written.Plan], Field(max_length=PLANS_MAX)]


class KeptDocument(written.Document):
    """All contracts; a document that was never written has no plans."""

    plans: Annotated[dict[written.Name, written.Plan], Field(max_length=PLANS_MAX)]


class Change(Part):
    """One change of the contracts."""

    version: VersionNumber
    by: str = Field(description="The author: the name of a token, or of the command or program that made the change.")
    when: written.Moment
    identity: written.Identity | None = Field(description="The customer that it changed; null for the whole document.")
    before: Any = Field(description="The contract or document before the change; null if there was none.")
    after: Any = Field(description="The contract or document after the change; null if there is none.")


class History(Part):
    """The last changes of the contracts, the newest first."""

    changes: list[Change]


class Forgotten(Part):
    """The result of erasing a customer: how much was erased, and whether anything is left."""

    version: VersionNumber
    complete: bool = Field(description="Whether no data of the customer are left, as far as the API could search.")
    cells: Count = Field(description="The number of keys of limits that were deleted at the hub.")
    kept: Count = Field(description="The number of keys left, because nodes use them or do not answer; try again.")
    rows: Count = Field(description="The number of rows and events of usage that were deleted at the hub.")
    problem: str = Field(description="The part that failed, in a sentence; empty if none did.")


class Status(Part):
    """The contracts in force on one node, and how often the node has exchanged them with the hub."""

    version: VersionNumber | None = Field(description="The version of the contracts in force; null without any.")
    follows: bool = Field(description="Whether the node follows the contracts at its hub.")
    accepted: Count = Field(description="How often the node has accepted a new version.")
    rejected: dict[str, Count] = Field(description="How often it has rejected a version, by reason: forged, old, ...")
    failures: dict[str, Count] = Field(description="How often it could not use the hub, by kind of failure.")
    expires_in_s: float | None = Field(description="Seconds until starting nodes reject them; null for never.")
    restored: Count = Field(
        description="How often this node has brought these contracts back to a hub that had lost them."
    )


class WrongField(Part):
    """A mistake in one field of a body."""

    pointer: str = Field(description="A JSON Pointer to the field in the body.")
    detail: str


class ProblemDetails(Part):
    """A problem, in the form of RFC 9457."""

    type: str
    title: str
    status: Annotated[int, Field(ge=400, le=599)]
    detail: str
    errors: list[WrongField] = Field(default_factory=list)
    parameter: str = Field("", description="The name of the wrong query parameter.")
    version: VersionNumber = Field(0, description="The present version, if it is not the expected one.")
    kind: str = Field("", description="The kind of a failure of the hub, such as `timeout`.")
    applied: bool | None = Field(None, description="Whether the change was made; null if that is not known.")
