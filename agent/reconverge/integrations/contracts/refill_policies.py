"""Contracts from XML: `<Contract>` with an `<Identifier>` and a `<RefillPolicy>` for each limit."""

# Theory of operation.
#
# A refill policy says "how many" in "what time", and nothing else (M. Šnuderl, Rate limiting in API management, 2018,
# listings 6.1 and 6.2).
#
#     <Contract>
#       <Identifier>User1235</Identifier>
#       <RefillPolicy><Capacity>20</Capacity><SamplingPeriod>HOUR</SamplingPeriod></RefillPolicy>
#       <RefillPolicy><Capacity>1000</Capacity><SamplingPeriod>DAY</SamplingPeriod></RefillPolicy>
#     </Contract>
#
# A contract is a customer, its policies are the limits of a plan, each named after its period, and customers with the
# same policies share a plan. Several contracts stand in `<Contracts>`. A `<RefillPolicy>` by itself is bound to no
# customer: it is the plan of unknown customers, whose requests are refused otherwise.
#
# XML can name files and addresses to be read, and stand for much more than it looks like, both by declarations of
# entities. Those need a DOCTYPE, so a file that has one is refused before anything of it is read.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from xml.parsers import expat

from reconverge.errors import InvalidLimit, asked, shown
from reconverge.integrations.config.positions import InvalidConfiguration
from reconverge.integrations.contracts.imported import Imported, Names, imported
from reconverge.limit.grammar import UNITS_S
from reconverge.limit.limit import Limit

BYTES_MAX: Final = 1 << 24
DEPTH_MAX: Final = 8
"""Of elements in each other; contracts have four."""
DEFAULT: Final = "default"
INEXACT: Final = {"month": "30 days", "months": "30 days", "mo": "30 days"} | dict.fromkeys(
    ("year", "years", "y"), "360 days"
)
"""Periods that are of no one length, and what they are read as."""
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
    """An element of XML."""

    name: str
    line: int
    text: str = ""
    below: list[Element] = field(default_factory=list["Element"])


def imported_from_xml(path: Path) -> Imported:
    """The contracts that an XML file stands for. Raises InvalidConfiguration, with line and field."""
    return _Import(path.name).contracts(_root(path))


@dataclass(slots=True)
class _Import:
    """Makes the contracts of one file."""

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
            self._remark(root, f"is bound to no customer, so it is the plan {DEFAULT} of unknown customers")
            return imported(self.source, table | {"unknown": DEFAULT}, self.remarks)
        for contract in [root] if root.name == CONTRACT else self._parts(root, CONTRACTS, (CONTRACT,)):
            parts = self._parts(contract, CONTRACT, (IDENTIFIER, POLICY))
            identity = self._only(contract, parts, IDENTIFIER)
            if not identity.text:
                raise self._wrong(identity, "is empty")
            if identity.text in customers:
                raise self._wrong(identity, f"{shown(identity.text)} has a contract above already")
            limits = self._limits(contract, [part for part in parts if part.name == POLICY])
            plan = self.names.of("_".join(f"{each.partition('/')[0]}-{name}" for name, each in limits.items()))
            plans[plan] = {"limits": limits}
            customers[identity.text] = {"plan": plan}
        if not customers:
            raise self._wrong(root, f"has no {CONTRACT}")
        self._remark(root, "says nothing of other customers, so their requests are refused")
        return imported(self.source, table, self.remarks)

    def _limits(self, contract: Element, policies: Sequence[Element]) -> dict[str, str]:
        limits: dict[str, str] = {}
        if not policies:
            raise self._wrong(contract, f"has no {POLICY}; a contract without would admit everything")
        for policy in policies:
            name, limit = self._limit(policy)
            if name in limits:
                raise self._wrong(policy, f"is the second one for {name}; the smaller one of both suffices")
            limits[name] = limit
        return limits

    def _limit(self, policy: Element) -> tuple[str, str]:
        """The name of a limit, and its limit string."""
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
                period, f"{shown(period.text)} is no period: {error.problem}{asked(name, UNITS_S)}"
            ) from None
        try:
            Limit.parse(text)
        except InvalidLimit as error:
            raise self._wrong(capacity, error.problem) from None
        if name in INEXACT:
            self._remark(period, f"{period.text} is {INEXACT[name]}")
        return name.replace(" ", "-"), text

    def _parts(self, element: Element, name: str, known: Sequence[str]) -> list[Element]:
        if element.name != name:
            raise self._wrong(element, f"is no <{name}>; a file begins with <{CONTRACT}>, <{CONTRACTS}> or <{POLICY}>")
        if element.text:
            raise self._wrong(element, f"has text of its own: {shown(element.text)}")
        for part in element.below:
            if part.name not in known:
                raise self._wrong(part, f"is unknown in <{name}>; known: {', '.join(known)}{asked(part.name, known)}")
        return element.below

    def _only(self, element: Element, parts: Sequence[Element], name: str) -> Element:
        found = [part for part in parts if part.name == name]
        if len(found) != 1:
            raise self._wrong(element, f"has {len(found)} <{name}> where one is wanted")
        if found[0].below:
            raise self._wrong(found[0], "has elements where text is wanted")
        return found[0]

    def _wrong(self, element: Element, problem: str) -> InvalidConfiguration:
        return InvalidConfiguration(self.source, problem, line=element.line, field=element.name)

    def _remark(self, element: Element, text: str) -> None:
        self.remarks.append(f"{self.source}, line {element.line}: {element.name}: {text}")


def _root(path: Path) -> Element:
    """The outermost element of a file. Raises InvalidConfiguration."""
    parser = expat.ParserCreate()
    above = [Element("", 0)]

    def wrong(problem: str, line: int | None = None) -> InvalidConfiguration:
        return InvalidConfiguration(path.name, problem, line=parser.CurrentLineNumber if line is None else line)

    def begin(name: str, attributes: dict[str, str]) -> None:
        if attributes:
            raise wrong(f"<{shown(name)}> has attributes, which say nothing in a contract; leave them out")
        if len(above) > DEPTH_MAX:
            raise wrong(f"has more than {DEPTH_MAX} elements in each other")
        element = Element(name, parser.CurrentLineNumber)
        above[-1].below.append(element)
        above.append(element)

    def end(_: str) -> None:
        element = above.pop()
        element.text = element.text.strip()

    def read(text: str) -> None:
        above[-1].text += text

    def refuse(*_: object) -> None:
        raise wrong("has a DOCTYPE, by which XML reads other files; leave it out")

    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = begin, end, read
    parser.StartDoctypeDeclHandler = refuse
    parser.buffer_text = True
    try:
        parser.Parse(_written(path), True)  # noqa: FBT003  # all of it
    except expat.ExpatError as error:
        raise wrong(f"is not XML: {expat.ErrorString(error.code)}", error.lineno) from None
    except (LookupError, ValueError) as error:  # an encoding that there is not, or text that is none in it
        if isinstance(error, InvalidConfiguration):
            raise
        raise wrong(f"is not XML: {error}", 1) from None
    return above[0].below[0]


def _written(path: Path) -> bytes:
    """Reads a file. Raises InvalidConfiguration."""
    try:
        if path.exists() and not path.is_file():
            raise InvalidConfiguration(
                str(path), "cannot be read: it is no regular file; name one"
            )  # a pipe would be waited for
        with path.open("rb") as file:
            written = file.read(BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        if isinstance(error, InvalidConfiguration):
            raise
        raise InvalidConfiguration(str(path), f"cannot be read: {error}") from error
    if len(written) > BYTES_MAX:
        raise InvalidConfiguration(path.name, f"has more than {BYTES_MAX} bytes; divide it")
    return written
