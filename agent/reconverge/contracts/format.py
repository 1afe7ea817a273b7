"""The format of contracts: pydantic models that read files and requests, and define the JSON Schema and HTTP API."""

# Theory of operation.
#
# A dict, as readers of YAML, JSON and TOML return it, is read by the models below: they check types, ranges, known
# fields and required fields. `document.py` makes plans and customers of them, and checks the rules about several
# fields: whether a plan exists, or a burst fits the algorithm. So all that the JSON Schema refuses is refused by a
# node, too.
#
# Pydantic is needed where contracts are read, and nowhere else: nodes decide by the plain classes of `model.py`.
#
# A field that may be left out may be null, too: an empty value in YAML is null, and counts as left out.

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar, get_args, get_origin

from reconverge.clock import SECOND_NS
from reconverge.contracts.model import (
    CUSTOMER,
    CUSTOMERS_MAX,
    FACTS_MAX,
    FORMER_MAX,
    IDENTITY_BYTES_MAX,
    LASTS_MAX_S,
    LIMITS_MAX,
    NO_BANS,
    NOTE_LENGTH_MAX,
    PLANS_MAX,
    REFUSED,
    WORDS,
    InvalidContracts,
    Word,
    check_identity,
)
from reconverge.errors import InvalidLimit, InvalidSetting, MissingExtra, asked, shown
from reconverge.limit.calendar import FIRST_S, LAST_S
from reconverge.limit.checks import KINDS_MAX, NAME_LENGTH_MAX, SOFT_MAX, check_name
from reconverge.limit.durations import seconds_of_iso
from reconverge.limit.grammar import TEXT_LENGTH_MAX
from reconverge.limit.limit import ALIGNMENTS, KNOWN_ALGORITHMS, QUOTA_MAX, REFILLS, SLICES_MAX, SLOT_LEASE_MAX_NS
from reconverge.limit.quotas import fraction_of

try:
    from pydantic import (
        AfterValidator,
        BaseModel,
        BeforeValidator,
        ConfigDict,
        Field,
        PlainValidator,
        SkipValidation,
        ValidationError,
        WithJsonSchema,
        WrapValidator,
    )
    from pydantic.json_schema import GenerateJsonSchema
    from pydantic_core import PydanticCustomError
    from typing_extensions import TypeAliasType
except ModuleNotFoundError as error:
    raise MissingExtra("reading contracts", error.name or "pydantic", "contracts") from error

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_NAME: Final = rf"^[A-Za-z0-9_./-]{{1,{NAME_LENGTH_MAX}}}$"
_ZONE: Final = rf"^[A-Za-z0-9_+/-]{{1,{NAME_LENGTH_MAX}}}$"
_LIMIT_STRING: Final = (
    r"^\s*[0-9]+\s*((/|[Pp][Ee][Rr])\s*[0-9A-Za-z]|[Ii][Nn]\s+[Ff][Ll][Ii][Gg][Hh][Tt]|[Cc][Oo][Nn][Cc][Uu][Rr])"
)
_FACT: Final = r"^[^\x00-@\[-\^`{-\x7f][^\x00-/:-@\[-\^`{-\x7f]*$"
"""The pattern of a fact's name: ASCII letters, digits and underlines, and any letters beyond ASCII."""
_WRITE_MISSING: Final = {
    "plans": "; write the limits of each plan, as in plans: {free: {limits: {calls: 100/minute}}}",
    "limits": "; write the limits of the plan, as in limits: {calls: 100/minute}",
    "limit": "; write a limit string such as 100/minute",
    "plan": "; write the name of a plan",
}
_PROBLEMS: Final = {
    "contracts": "{problem}",  # raised by the functions below
    "missing": "is missing",
    "dict_type": "must be a table, not {input}",
    "model_type": "must be a table, not {input}",
    "string_type": "must be text, not {input}",
    "string_unicode": "has half of a surrogate pair, which is no character",
    "int_type": "must be a whole number, not {input}",
    "float_type": "must be a number, not {input}",
    "bool_type": "must be true or false, not {input}",
    "too_short": "is empty; at least {min_length} must be there",
    "too_long": "has more than {max_length} entries",
    "string_pattern_mismatch": "must match {pattern}, not {input}",
    "string_too_long": "has more than {max_length} characters",
}
NO_FIELDS: Final[dict[str, str]] = dict.fromkeys(
    ("block_after", "block_for"),
    NO_BANS,
)
"""Settings that other limits may have and a limit of contracts may not, each with the remedy for an error message."""


def wrong(problem: str) -> PydanticCustomError:
    """Returns an error for pydantic, with `problem` as its message; a validator raises it for an invalid value."""
    return PydanticCustomError("contracts", "{problem}", {"problem": problem})


def _checked_by(check: Callable[[object], str]) -> AfterValidator:
    def read(said: str) -> str:
        try:
            return check(said)
        except (InvalidLimit, InvalidContracts) as error:
            raise wrong(error.problem) from None

    return AfterValidator(read)


def _word(said: object) -> Word:
    if isinstance(said, bool):  # YAML reads on and off as true and false
        said = "on" if said else "off"
    if not isinstance(said, str) or said not in WORDS:
        raise wrong(f"must be {', '.join(map(repr, WORDS))}, not {shown(said)}")
    return WORDS[said]


def _share(said: object) -> object:
    if not isinstance(said, str):
        return said
    try:
        return fraction_of(said)
    except InvalidSetting as error:
        raise wrong(f"{shown(said)} {error.problem}") from None


def _facts(said: object) -> tuple[str, ...]:
    facts = [said] if isinstance(said, str) else said
    if not isinstance(facts, Sequence) or not 1 <= len(facts) <= FACTS_MAX:
        raise wrong(f"must name 1 to {FACTS_MAX} facts of a request, such as [customer, user], not {shown(said)}")
    for each in facts:
        if not isinstance(each, str) or not each.isidentifier():
            raise wrong(f"{shown(each)} cannot be a fact's name; use letters, digits and _, as in user or api_key")
    if len(set(facts)) < len(facts):
        raise wrong(f"{shown(said)} names the same fact twice; leave one out")
    return tuple(facts)


def _duration(said: object) -> float:
    if isinstance(said, str):
        try:
            seconds = seconds_of_iso(said)
        except ValueError as error:
            raise wrong(f"{shown(said)} {error}") from None
    elif isinstance(said, int | float) and not isinstance(said, bool):
        seconds = said
    else:
        raise wrong(f"must be seconds, or a duration such as P14D, not {shown(said)}")
    if not 0 < seconds <= LASTS_MAX_S:
        raise wrong(f"{shown(said)} must be above zero and at most a hundred years")
    return seconds


def _moment(said: object) -> float:
    if isinstance(said, datetime):  # TOML and YAML read them by themselves
        moment = said
    elif isinstance(said, date):
        moment = datetime(said.year, said.month, said.day)  # noqa: DTZ001  # its zone is added below
    elif isinstance(said, str):
        try:
            moment = datetime.fromisoformat(said)
        except ValueError:
            raise wrong(f"{shown(said)} is no moment like 2026-11-23T12:00:00Z") from None
    else:
        raise wrong(f"must be a moment like 2026-11-23T12:00:00Z, not {shown(said)}")
    at = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    if not FIRST_S <= at <= LAST_S:
        raise wrong(f"{shown(said)} is not between the years 1970 and 9987")
    return at


def _short_for(field: str, *kinds: type) -> Callable[[object], object]:
    """Returns a validator that turns a value of one of `kinds` into the dict `{field: value}`, and keeps all others."""
    return lambda said: {field: said} if isinstance(said, kinds) else said


def _text_or(said: object, table: Callable[[object], Any]) -> Any:
    """Reads a customer's limit: returns text unchanged, and passes any other value to `table`."""
    return said if isinstance(said, str) else table(said)


def _text(pattern: str, **more: Any) -> Any:
    """Returns an annotation that describes a text with `pattern` in the JSON Schema; it checks no value."""
    return WithJsonSchema({"type": "string", "pattern": pattern, **more})


Name = Annotated[str, _checked_by(check_name), _text(_NAME)]
PlanName = Annotated[str, _text(_NAME)]
LimitString = TypeAliasType("LimitString", Annotated[str, _text(
    _LIMIT_STRING, maxLength=TEXT_LENGTH_MAX,
    description="How much in what time: 100/minute, 5 per 10 seconds, 20/PT10M, 10/s burst 20; at once: 20 in flight.",
)])  # fmt: skip
Identity = Annotated[str, _checked_by(check_identity), _text(
    "^[^\\u0000]*$", minLength=1, maxLength=IDENTITY_BYTES_MAX,
    description=f"Names a customer; at most {IDENTITY_BYTES_MAX} bytes.",
)]  # fmt: skip
Moment = TypeAliasType("Moment", Annotated[float, PlainValidator(_moment), _text(
    "^[0-9]{4}", description="ISO 8601, UTC unless it says otherwise."
)])  # fmt: skip
Seconds = Annotated[float, Field(gt=0, le=LASTS_MAX_S)]
Duration = TypeAliasType("Duration", Annotated[
    float, PlainValidator(_duration, json_schema_input_type=Annotated[str, _text("^[Pp][0-9Tt]")] | Seconds)
])  # fmt: skip
Fact = Annotated[str, _text(_FACT)]
Facts = TypeAliasType("Facts", Annotated[tuple[str, ...], PlainValidator(
    _facts,
    json_schema_input_type=Fact
    | Annotated[list[Fact], Field(min_length=1, max_length=FACTS_MAX, json_schema_extra={"uniqueItems": True})],
)])  # fmt: skip
ReadWord = TypeAliasType("ReadWord", Annotated[
    Word, PlainValidator(_word, json_schema_input_type=Literal["on", "shadow", "off", True, False])
])  # fmt: skip
Share = Annotated[float, Field(ge=0, le=SOFT_MAX)]
Soft = Annotated[Share, BeforeValidator(
    _share, json_schema_input_type=Annotated[str, _text(r"^\s*[0-9]+(\.[0-9]+)? ?%\s*$")] | Share
)]  # fmt: skip
Whole = Annotated[int, Field(ge=0, le=QUOTA_MAX)]
Kind = Annotated[str, Field(min_length=1)]


class Table(BaseModel):
    """The base class of all models of a contracts document: unknown fields are errors, and types are strict."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class LimitTable(Table):
    """A limit string, with settings that a limit string cannot express."""

    limit: LimitString
    algorithm: Annotated[str, Field(json_schema_extra={"enum": [*KNOWN_ALGORITHMS]})] | None = None
    slices: Annotated[int, Field(ge=1, le=SLICES_MAX)] | None = None
    count_refused: bool | None = None
    align: Annotated[str, Field(json_schema_extra={"enum": [*ALIGNMENTS]})] | None = None
    timezone: Annotated[str, _text(_ZONE)] | None = None
    initial: Whole | None = None
    refill: Annotated[str, Field(json_schema_extra={"enum": [*REFILLS]})] | None = None
    soft: Soft | None = None
    max_debt: Whole | None = None
    costs: Annotated[dict[Kind, Whole], Field(min_length=1, max_length=KINDS_MAX)] | None = None
    lease: Annotated[float, Field(gt=0, le=SLOT_LEASE_MAX_NS / SECOND_NS)] | None = Field(
        None, description="Of a limit on what is in progress: for how many seconds a silent node's slots stay taken."
    )


class SwitchTable(Table):
    """The switch of a limit or a contract: its state, the percentage of keys that have that state, and its end."""

    to: ReadWord
    percent: Annotated[float, Field(ge=0, le=100)] | None = Field(None, description="Of keys, by hash; others are on.")
    until: Moment | None = Field(None, description="The moment at which it is on again.")


Switch = TypeAliasType("Switch", Annotated[
    SwitchTable, BeforeValidator(_short_for("to", str, bool), json_schema_input_type=ReadWord | SwitchTable)
])  # fmt: skip


class PlanLimit(LimitTable):
    """A limit of a plan, with the facts by which it counts and its switch."""

    by: Facts | None = Field(None, description=f"The facts of a request by which it counts; by default [{CUSTOMER}].")
    switch: Switch | None = None


LimitOfPlan = TypeAliasType("LimitOfPlan", Annotated[
    PlanLimit, BeforeValidator(_short_for("limit", str, int, float), json_schema_input_type=LimitString | PlanLimit)
])  # fmt: skip
if TYPE_CHECKING:
    LimitOfCustomer = LimitTable | str
else:
    LimitOfCustomer = TypeAliasType("LimitOfCustomer", Annotated[
        LimitTable, WrapValidator(_text_or, json_schema_input_type=LimitString | LimitTable)
    ])  # fmt: skip


class Plan(Table):
    """A set of limits that many customers share."""

    limits: Annotated[dict[Name, LimitOfPlan], Field(min_length=1, max_length=LIMITS_MAX)]
    lasts: Duration | None = Field(
        None, description="How long it lasts from a customer's `since`: seconds, or ISO 8601 as in P14D."
    )
    then: PlanName | None = Field(None, description="The name of the plan that follows when this one ends.")


class Former(LimitTable):
    """A limit from before a contract changed, which stays in force until its use has stopped counting."""

    name: Name
    until: Moment
    by: Facts | None = None


class Customer(Table):
    """The contract of one customer."""

    plan: PlanName
    limits: Annotated[dict[Name, LimitOfCustomer], Field(max_length=LIMITS_MAX)] | None = Field(
        None, description="The customer's own limits in place of the plan's limits of these names."
    )
    since: Moment | None = Field(None, description="When the plan began; required if the plan has `lasts`.")
    until: Moment | None = Field(None, description="When the contract ends, and the plan `then` begins.")
    then: PlanName | None = None
    switch: Switch | None = Field(None, description="The switch of the whole contract.")
    switches: Annotated[dict[Name, Switch], Field(max_length=LIMITS_MAX)] | None = Field(
        None, description="The switches of single limits, by the limit's name."
    )
    former: Annotated[list[Former], Field(max_length=FORMER_MAX)] | None = Field(
        None, description="Former limits that are still in force; programs that change contracts write them."
    )
    note: Annotated[str, Field(max_length=NOTE_LENGTH_MAX)] | None = Field(
        None, description="A comment for human readers."
    )


Contract = TypeAliasType("Contract", Annotated[
    Customer,
    BeforeValidator(_short_for("plan", str), json_schema_input_type=Annotated[str, _text(_NAME)] | Customer),
])  # fmt: skip


class Document(Table):
    """Plans, and the customers that are on them."""

    plans: Annotated[dict[Name, Plan], Field(min_length=1, max_length=PLANS_MAX)] = Field(
        description="Limits that many customers have, by name."
    )
    customers: SkipValidation[
        Annotated[dict[Identity, Contract], Field(max_length=CUSTOMERS_MAX)] | None
    ] = Field(None, description="Contracts by the identity of the customer.")  # fmt: skip
    """The contracts, which are read one by one afterwards."""
    unknown: PlanName | None = Field(
        None,
        description=f"The plan of customers that are not named; by default {REFUSED!r}: their requests are refused.",
    )


T = TypeVar("T", bound=Table)


def read(table: type[T], said: object, *path: str) -> T:
    """Checks the value `said` against the model `table`. Returns the model with its values.

    Raises InvalidContracts for the first mistake; `path` leads to the value.
    """
    try:
        return table.model_validate(said)
    except ValidationError as error:
        raise mistake_in(error, table, *path) from None


def mistake_in(error: ValidationError, table: type[Table], *path: str) -> InvalidContracts:
    """Returns an InvalidContracts for the first mistake that pydantic has found, with its path and a remedy."""
    first, *others = error.errors(include_url=False)
    if first["type"] == "missing":  # if a field is misspelt, the error names that one
        others = [
            each for each in others if each["type"] == "extra_forbidden" and each["loc"][:-1] == first["loc"][:-1]
        ]
        first = next(iter(others), first)
    kind, loc = first["type"], first["loc"]
    at_name = loc[-1:] == ("[key]",)
    if kind == "invalid_key" or (at_name and kind == "string_type"):
        name = loc[-2] if at_name else loc[-1]
        problem = f"has the key {shown(name)}, which is no text; put it into quotes"
        return InvalidContracts(problem, *path, *map(str, loc[: -2 if at_name else -1]))
    at = [*path, *map(str, loc[:-1] if at_name else loc)]
    if kind == "extra_forbidden":
        known = tuple(_table_at(table, loc[:-1]).model_fields)
        unknown = f"there is no such field; known: {', '.join(known)}{asked(loc[-1], known)}"
        return InvalidContracts(NO_FIELDS.get(str(loc[-1]), unknown), *at)
    return InvalidContracts(problem_of(first), *at)


def problem_of(mistake: Mapping[str, Any]) -> str:
    """Returns the message for a mistake that pydantic has found, worded like other errors of contracts documents."""
    said = _PROBLEMS.get(mistake["type"]) or str(mistake["msg"]).replace("Input should", "must", 1) + ", not {input}"
    advice = ""
    if mistake["type"] == "string_type" and "limits" in mistake["loc"]:
        advice = _WRITE_MISSING["limit"]
    elif mistake["type"] == "missing":
        advice = _WRITE_MISSING.get(str(mistake["loc"][-1]), "")
    return said.format(**{**mistake.get("ctx", {}), "input": shown(mistake["input"])}) + advice


def _table_at(table: type[Table], loc: Sequence[int | str]) -> type[Table]:
    """Returns the class of the entry at the path `loc`, which begins at an entry of the class `table`."""
    names = iter(loc)
    for name in names:
        annotation = table.model_fields[str(name)].annotation
        table, inside = _table_in(annotation)
        if inside:
            next(names, None)  # the name of an entry, or the number of one
    return table


def _table_in(annotation: Any) -> tuple[type[Table], bool]:
    """Returns the class of entry in a type annotation, and whether the type is a dictionary or list of such entries."""
    if isinstance(annotation, TypeAliasType):
        return _table_in(annotation.__value__)
    if isinstance(annotation, type) and issubclass(annotation, Table):
        return annotation, False
    found = next((each for part in get_args(annotation) if (each := _table_in(part))[0] is not Table), (Table, False))
    return found[0], found[1] or get_origin(annotation) in (dict, list)


class _Schema(GenerateJsonSchema):
    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002  # a name in other letters tells nothing
        return False


def schema() -> dict[str, Any]:
    """Returns the JSON Schema (2020-12) of a whole document, for editors and for programs that write one."""
    return {"$schema": DIALECT, **Document.model_json_schema(schema_generator=_Schema)}
