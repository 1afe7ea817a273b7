"""Checks every answer of a hub before the node uses any part of it.

A hub may be anything: a package of a third party, a server that others run, or a proxy that cuts messages. Its answers
move a node's clock, its allowances and its lease, so one absurd number could stop a node from ever exchanging again. An
answer is refused as a whole, as a failed exchange of the class "protocol", unless

* every value has its type (a whole number is an `int`, and neither a `bool` nor a `float`) and fits into a message,
* the hub's clock shows a moment between 1970 and 2100,
* a merged batch got one cell answer for each cell report, and
* no allowance is larger than the capacity that it is a part of, by the hub's answer and by the batch itself.

A refused answer changes nothing on the node: neither its clock, nor an allowance, its lease or its name. A number that
is wrong but within these bounds does limited harm: a node never uses an allowance beyond its lease, and it notices a
jump of the hub's clock.

`first_odd_cell` defines which cell answers are plausible; the compiled kernel has a twin of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import floor
from typing import Final, NamedTuple, NoReturn

from reconverge.errors import ONE_VERSION, SHOWN_MAX, HubUnavailable
from reconverge.hub.report import (
    ANSWER_ROWS,
    NOT_TAKEN,
    UNBOUNDED,
    WHOLE_MAX,
    Answer,
    AnswerRows,
    Batch,
    CellAnswer,
    CellReport,
    Lent,
    LimitReport,
    Loan,
    Status,
    Totals,
    Wish,
    Wishes,
)

HUB_US_MAX: Final = 4_102_444_800_000_000
"""The first moment of the year 2100: no clock that shows it is right, and nanoseconds up to there fit into 64 bits."""
GENERATION_BYTES_MAX: Final = 128
WISHES_MAX: Final = 100_000
"""The most keys in need of a loan that an answer of a region's hub may list; the hubs of this project send at most
1,000."""
TEXT_BYTES_MAX: Final = 1 << 17
"""The longest text in an answer, in bytes: the name of a cell, made of the limit's name, its kind and the key."""


class CellBounds(NamedTuple):
    """The largest amounts that a hub's answer may grant on one key of a limit."""

    capacity: int
    base: int
    overdraft: int


_NODES: Final = CellAnswer._fields.index("nodes") - CellAnswer._fields.index("silent")
OddCell = Callable[[Sequence[CellReport], Sequence[CellAnswer], tuple[CellBounds, ...]], int]
"""A function like `first_odd_cell`: takes the cell reports of a batch, the hub's answers to them, and the bounds for
each limit of the batch. Returns the index of the first implausible answer; -1 if there is none."""


def check_answer(batch: Batch, answer: Answer, odd_cell: OddCell | None = None) -> None:
    """Raises HubUnavailable if `answer` cannot be the answer to `batch`, or contains implausible numbers.

    `odd_cell` finds an implausible cell answer; by default `first_odd_cell`.
    """
    if not isinstance(answer, Answer):
        _refuse("the answer", answer)
    _check_clock(answer.hub_us)
    if type(answer.status) is not Status:
        _refuse("the status", answer.status)
    merged = answer.status is Status.MERGED
    check_text("the generation", answer.generation, least=int(merged), most=GENERATION_BYTES_MAX)
    if not isinstance(answer.cells, tuple | AnswerRows):
        _refuse("the cells", answer.cells)
    if not merged:
        return
    try:
        count = len(answer.cells)
        if (
            isinstance(answer.cells, AnswerRows)
            and len(answer.cells.raw) != count * ANSWER_ROWS[answer.cells.wide].size
        ):
            raise HubUnavailable(
                "protocol", f"the hub's answer for shard {batch.shard} is cut off in its last cell; {ONE_VERSION}"
            )
        if count != len(batch.cells):
            raise HubUnavailable(
                "protocol",
                f"the node reported {len(batch.cells)} cells of shard {batch.shard}, and the hub answered {count}; "
                f"{ONE_VERSION}",
            )
        if count:
            odd = (odd_cell or first_odd_cell)(batch.cells, answer.cells, tuple(map(_bounds, batch.limits)))
            if odd >= 0:
                limit = batch.limits[batch.cells[odd][0]].name
                problem = f"the hub's answer about a key of the limit {limit!r} is impossible: {_cell(answer, odd)}"
                raise HubUnavailable("protocol", f"{problem}; {ONE_VERSION}")
    except (TypeError, ValueError, OverflowError, LookupError, AttributeError) as error:
        problem = f"the cells in the hub's answer for shard {batch.shard} cannot be read: {str(error)[:SHOWN_MAX]}"
        raise HubUnavailable("protocol", f"{problem}; {ONE_VERSION}") from error


def first_odd_cell(reports: Sequence[CellReport], answers: Sequence[CellAnswer], bounds: tuple[CellBounds, ...]) -> int:
    """Returns the index of the first cell answer that is not plausible for its report; -1 if all are plausible.

    `bounds[report.limit]` are the bounds for the answer to `report`.
    """
    for place, (report, answer) in enumerate(zip(reports, answers, strict=True)):
        if not _is_plausible(answer, bounds[report[0]]):
            return place
    return -1


def _is_plausible(answer: CellAnswer, bounds: CellBounds) -> bool:
    if not isinstance(answer, tuple) or len(answer) != len(CellAnswer._fields):
        return False
    if any(type(value) is not int for value in answer):
        return False
    epoch, allowance, base, overdraft, capacity, free, reserved, current, previous, *others = answer
    if answer.nodes == NOT_TAKEN and not (allowance or base or overdraft or free):
        others[_NODES] = 0  # no room for the key, and nothing is granted
    least = min(allowance, base, overdraft, free, reserved, *others)
    most = max(epoch, -epoch, current, -current, previous, -previous, reserved, *others)
    if least < 0 or most > WHOLE_MAX or max(allowance, base, free) > capacity:
        return False
    return capacity <= bounds.capacity and base <= bounds.base and overdraft <= bounds.overdraft


def _bounds(limit: LimitReport) -> CellBounds:
    # Loans of other regions may count for a while after the limit has become smaller.
    capacity = WHOLE_MAX if limit.apart else limit.capacity
    if limit.overshoot_milli == UNBOUNDED:
        return CellBounds(capacity, limit.capacity, WHOLE_MAX)
    overdraft = floor(float(limit.capacity) * limit.overshoot_milli / 1000)
    return CellBounds(capacity, limit.capacity, min(overdraft, WHOLE_MAX))


def check_totals(totals: Mapping[str, Totals]) -> None:
    """Raises HubUnavailable unless `totals` are plausible.

    They may be larger than any number in a message, because they are sums over many nodes.
    """
    if not isinstance(totals, dict):
        _refuse("the totals", totals)
    for name, each in totals.items():
        check_text("the name of a limit", name)
        if not isinstance(each, tuple) or [type(number) for number in each] != [int, int] or min(each) < 0:
            _refuse("the total of a limit", each)


def check_wishes(wishes: Wishes) -> None:
    """Raises HubUnavailable if `wishes` cannot be a hub's list of the keys for which a region needs loans."""
    if not isinstance(wishes, Wishes):
        _refuse("the answer about wishes", wishes)
    _check_clock(wishes.hub_us)
    check_text("the generation", wishes.generation, most=GENERATION_BYTES_MAX)
    _check_whole("the lease", wishes.lease_us)
    if not isinstance(wishes.wishes, tuple) or len(wishes.wishes) > WISHES_MAX:
        _refuse("the list of wishes", wishes.wishes)
    for wish in wishes.wishes:
        if not isinstance(wish, tuple) or len(wish) != len(Wish._fields):
            _refuse("a wish of the region", wish)
        check_text("the name of a cell", wish[0], least=1)
        check_text("the name of a limit", wish[1])
        for name, number in zip(Wish._fields[2:], wish[2:], strict=True):
            _check_whole(name, number, least=int(name in ("capacity", "quota", "window_us")))


def check_lent(loans: Sequence[Loan], lent: Lent) -> None:
    """Raises HubUnavailable if `lent` cannot be the answer of a region's hub to `Region.lend` with these `loans`."""
    if not isinstance(lent, Lent):
        _refuse("the result of the loans", lent)
    _check_clock(lent.hub_us)
    check_text("the generation", lent.generation, most=GENERATION_BYTES_MAX)
    if type(lent.status) is not Status:
        _refuse("the status", lent.status)
    if not isinstance(lent.held, tuple):
        _refuse("the amounts held of the loans", lent.held)
    if lent.status is Status.MERGED and len(lent.held) != len(loans):
        problem = f"{len(loans)} loans to the region were sent, and the hub answered {len(lent.held)}"
        raise HubUnavailable("protocol", f"{problem}; {ONE_VERSION}")
    for held in lent.held:
        _check_whole("the amount held of a loan", held, least=-1)


def check_posted(payload: bytes | None) -> None:
    """Raises HubUnavailable if `payload`, which a settings store has returned, is neither bytes nor None."""
    if payload is not None and type(payload) is not bytes:
        _refuse("the posted payload", payload)


def check_text(what: str, value: object, *, least: int = 0, most: int = TEXT_BYTES_MAX) -> None:
    """Raises HubUnavailable unless `value` is a string of `least` to `most` bytes in UTF-8.

    `what` is the name of the value in the message.
    """
    if type(value) is not str or not least <= len(value) <= most:
        _refuse(what, value)
    try:
        fits = len(value.encode()) <= most
    except UnicodeEncodeError:  # half of a surrogate pair
        fits = False
    if not fits:
        _refuse(what, value)


def _check_clock(hub_us: object) -> None:
    if type(hub_us) is not int or not 0 <= hub_us < HUB_US_MAX:
        _refuse("the hub's clock", hub_us)


def _check_whole(what: str, value: object, *, least: int = 0) -> None:
    if type(value) is not int or not least <= value <= WHOLE_MAX:
        _refuse(what, value)


def _cell(answer: Answer, place: int) -> str:
    fields = tuple(answer.cells)[place]
    if not isinstance(fields, tuple) or len(fields) != len(CellAnswer._fields):
        return shown(fields)
    values = dict(zip(CellAnswer._fields, fields, strict=True))
    return ", ".join(f"{name} {shown(value)}" for name, value in values.items() if value != 0)


def _refuse(what: str, value: object) -> NoReturn:
    raise HubUnavailable("protocol", f"{what} cannot be {shown(value)} in a hub's answer; {ONE_VERSION}")


def shown(value: object) -> str:
    """Returns a value as a short text for an error message, however large or deeply nested it is.

    Calls no method of an object whose class is neither built in nor of this package.
    """
    if type(value) is str:
        return ascii(value[:SHOWN_MAX])
    if type(value) is int:
        return str(value) if abs(value) <= 1 << 64 else "a number of more than 64 bits"
    if value is None or type(value) in (bool, float, Status):
        return repr(value)
    return f"a {type(value).__name__}"
