"""Imports contracts from XML: `<Contract>` with an `<Identifier>` and a `<RefillPolicy>` for each limit."""

# Theory of operation.
#
# A refill policy states how many requests in what time, and nothing else (M. Šnuderl, Rate limiting in API management,
# 2018, listings 6.1 and 6.2).
#
#     <Contract>       <Identifier>User1235</Identifier>
# <RefillPolicy><Capacity>20</Capacity><SamplingPeriod>HOUR</SamplingPeriod></RefillPolicy>
# <RefillPolicy><Capacity>1000</Capacity><SamplingPeriod>DAY</SamplingPeriod></RefillPolicy>     </Contract>
#
# A contract becomes a customer. Its policies become the limits of a plan, each named after its period, and customers
# with the same policies share a plan. Several contracts are written in `<Contracts>`. A `<RefillPolicy>` by itself
# belongs to no customer: it becomes the plan of unknown customers, whose requests are refused otherwise.
#
# XML can refer to files and addresses to be read, and can expand to much more than its own length, both by entity
# declarations. These need a DOCTYPE, so a file with a DOCTYPE is refused before any of it is read.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from xml.parsers import expat

from reconverge.errors import InvalidLimit, asked, shown
from reconverge.integrations.config.positions import InvalidConfiguration, bytes_of
from reconverge.integrations.contracts.importing.imported import Imported, Names, imported
from reconverge.limit.grammar import UNITS_S
from reconverge.limit.limit import Limit

BYTES_MAX: Final = 1 << 24
DEPTH_MAX: Final = 8
"""The deepest nesting of elements; contracts have four levels."""
DEFAULT: Final = "default"
INEXACT: Final = {"month": "30 days", "months": "30 days", "mo": "30 days"} | dict.fromkeys(
    ("year", "years", "y"), "360 days"
)
"""Periods without a fixed length, and the length that is used for them."""
CONTRACTS, CONTRACT, IDENTIFIER, POLICY, CAPACITY, PERIOD = (
    "Contracts",
    "Contract",
    "Identifier",
    "RefillPolicy",
    "Capacity",
    "SamplingPeriod",
)


@dataclass(slots=True)
class Element:
    """An element of XML: its name, its line, its text, and the elements nested below it."""

    name: str
    line: int
    text: str = ""
    below: list[Element] = field(default_factory=list["Element"])


def imported_from_xml(path: Path) -> Imported:
    """Returns the contracts equivalent to an XML file. Raises InvalidConfiguration, with line and field."""
    return _Import(path.name).contracts(_root(path))


@dataclass(slots=True)
class _Import:
    source: str
    remarks: list[str] = field(default_factory=list[str])
    names: Names = field(default_factory=Names)

    def contracts(self, root: Element) -> Imported:
        plans: dict[str, Any] = {}
        customers: dict[str, Any] = {}
        table = {"plans": plans, "customers": customers}
        if root.name == POLICY:
            name, limit = self._limit(root)
            plans[DEFAULT] = {"limits": {name: limit}}
            self._remark(root, f"belongs to no customer, so it becomes the plan {DEFAULT} of unknown customers")
            return imported(self.source, table | {"unknown": DEFAULT}, self.remarks)
        for contract in [root] if root.name == CONTRACT else self._parts(root, CONTRACTS, (CONTRACT,)):
            parts = self._parts(contract, CONTRACT, (IDENTIFIER, POLICY))
            identity = self._only(contract, parts, IDENTIFIER)
            if not identity.text:
                raise self._wrong(identity, "is empty; write the customer's name")
            if identity.text in customers:
                raise self._wrong(identity, f"{shown(identity.text)} already has a contract above; remove one")
            limits = self._limits(contract, [part for part in parts if part.name == POLICY])
            plan = self.names.of("_".join(f"{each.partition('/')[0]}-{name}" for name, each in limits.items()))
            plans[plan] = {"limits": limits}
            customers[identity.text] = {"plan": plan}
        if not customers:
            raise self._wrong(root, f"has no {CONTRACT}, so there is nothing to import; add one")
        self._remark(root, "has no plan for other customers, so their requests are refused")
        return imported(self.source, table, self.remarks)

    def _limits(self, contract: Element, policies: Sequence[Element]) -> dict[str, str]:
        limits: dict[str, str] = {}
        if not policies:
            raise self._wrong(contract, f"has no {POLICY}; a contract without one would admit everything")
        for policy in policies:
            name, limit = self._limit(policy)
            if name in limits:
                raise self._wrong(policy, f"is the second one for {name}; keep only the smaller of the two")
            limits[name] = limit
        return limits

    def _limit(self, policy: Element) -> tuple[str, str]:
        """Returns a refill policy's limit name and limit string. Raises InvalidConfiguration."""
        parts = self._parts(policy, POLICY, (CAPACITY, PERIOD))
        capacity, period = (self._only(policy, parts, name) for name in (CAPACITY, PERIOD))
        if not (capacity.text.isascii() and capacity.text.isdecimal()):
            raise self._wrong(capacity, f"must be a whole number, not {shown(capacity.text)}")
        name = period.text.lower()
        text = f"{int(capacity.text[:20])}/{name}"
        try:
            Limit.parse(f"1/{name}")
        except InvalidLimit as error:
            raise self._wrong(
                period, f"{shown(period.text)} is not a period: {error.problem}{asked(name, UNITS_S)}"
            ) from None
        try:
            Limit.parse(text)
        except InvalidLimit as error:
            raise self._wrong(capacity, error.problem) from None
        if name in INEXACT:
            self._remark(period, f"{period.text} is read as {INEXACT[name]}")
        return name.replace(" ", "-"), text

    def _parts(self, element: Element, name: str, known: Sequence[str]) -> list[Element]:
        if element.name != name:
            raise self._wrong(element, f"is not <{name}>; a file begins with <{CONTRACT}>, <{CONTRACTS}> or <{POLICY}>")
        if element.text:
            raise self._wrong(element, f"has text of its own: {shown(element.text)}; remove it")
        for part in element.below:
            if part.name not in known:
                raise self._wrong(part, f"is unknown in <{name}>; known: {', '.join(known)}{asked(part.name, known)}")
        return element.below

    def _only(self, element: Element, parts: Sequence[Element], name: str) -> Element:
        found = [part for part in parts if part.name == name]
        if len(found) != 1:
            raise self._wrong(element, f"must contain exactly one <{name}>, and has {len(found)}")
        if found[0].below:
            raise self._wrong(found[0], "must contain text alone, and has elements; remove them")
        return found[0]

    def _wrong(self, element: Element, problem: str) -> InvalidConfiguration:
        return InvalidConfiguration(self.source, problem, line=element.line, field=element.name)

    def _remark(self, element: Element, text: str) -> None:
        self.remarks.append(f"{self.source}, line {element.line}: {element.name}: {text}")


def _root(path: Path) -> Element:
    parser = expat.ParserCreate()
    above = [Element("", 0)]

    def wrong(problem: str, line: int | None = None) -> InvalidConfiguration:
        return InvalidConfiguration(path.name, problem, line=parser.CurrentLineNumber if line is None else line)

    def begin(name: str, attributes: dict[str, str]) -> None:
        if attributes:
            raise wrong(f"<{shown(name)}> has attributes, which have no meaning in a contract; remove them")
        if len(above) > DEPTH_MAX:
            raise wrong(f"has more than {DEPTH_MAX} levels of nested elements; contracts need fewer")
        element = Element(name, parser.CurrentLineNumber)
        above[-1].below.append(element)
        above.append(element)

    def end(_: str) -> None:
        element = above.pop()
        element.text = element.text.strip()

    def read(text: str) -> None:
        above[-1].text += text

    def refuse(*_: object) -> None:
        raise wrong("has a DOCTYPE, which could make XML read other files; remove it")

    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = begin, end, read
    parser.StartDoctypeDeclHandler = refuse
    parser.buffer_text = True
    try:
        parser.Parse(_written(path), True)  # noqa: FBT003  # it is the whole file
    except expat.ExpatError as error:
        raise wrong(f"is not XML: {expat.ErrorString(error.code)}", error.lineno) from None
    except (LookupError, ValueError) as error:  # an unknown encoding, or text that is invalid in it
        if isinstance(error, InvalidConfiguration):
            raise
        raise wrong(f"is not XML: {error}", 1) from None
    return above[0].below[0]


def _written(path: Path) -> bytes:
    written = bytes_of(path, BYTES_MAX + 1)
    if len(written) > BYTES_MAX:
        raise InvalidConfiguration(path.name, f"has more than {BYTES_MAX} bytes; divide it into several files")
    return written
