"""The messages of one exchange: a node's batch of reports, and the hub's answer.

Amounts are whole numbers of cost, or of thousandths where the name says `_milli`; moments are microseconds of the
hub's clock. All of them are absolute: a repeated message changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import IntEnum
from functools import cache
from operator import itemgetter
from struct import Struct
from typing import Final, NamedTuple, Protocol, cast, overload, runtime_checkable

from reconverge.limit.limit import GCRA, SLIDING_LOG, SLIDING_SLICES, TOKEN_BUCKET

SCHEMA_VERSION = 1
WHOLE_MAX = 2**53
"""The largest number in a message: Lua has only doubles, which are exact up to this one."""
UNBOUNDED = -1
"""The value of an infinite `max_overshoot` in messages, which hold only integers."""
NOT_TAKEN = -1
"""The number of nodes in an answer that means: the hub has no room for this key, stores nothing of it, and grants
nothing. All other fields of that answer are those of an unused key, with no allowance and nothing free. So a node that
does not know this mark takes the key for such a one, and admits no more than its policy allows without an allowance."""
FORGOTTEN = 2**31 - 1
"""In place of `asked` in a report: with this report the node forgets the key, see `CellReport.forgotten`. In place of
`nodes` in the answer to such a report: the hub has taken over what the node has used. A hub that does not know this
mark merges the report as any other and answers without the mark, so the node keeps the key."""
ASKS = 2**31
"""Added to `asked` in a report: the node asks the hub when it is in doubt, and what is added to the mark is the cost
that waits for the answer. A hub that does not know this mark takes it for a large demand, and grants an allowance as
ever."""
AT_HUB = 2**30
"""Added to the number of nodes in the answer to a report with ASKS: the free capacity of this key stays at the hub. The
node was granted what it had asked for and nothing in advance, and keeps nothing; see `CellAnswer.allowance`."""
FLOATS = 2**30
"""Added to ASKS in a report about a bucket which, by the node's last answer, is kept at the hub: the hub adds the
node's charges since its last report to its own bucket, and so it does with `previous`, the part of the returned
allowance that has drained since."""
WAITING_MAX = FLOATS - 1
"""The largest waiting cost in a report."""


class Status(IntEnum):
    """The result of a batch."""

    MERGED = 0
    STALE = 1
    """A newer batch of this node had come before it: nothing was merged."""
    LAPSED = 2
    """The hub has given up on this node: nothing was merged, and the node must take a new name."""


class LimitReport(NamedTuple):
    """The declaration of one limit on this node, and the node's total charges to it."""

    name: str
    algorithm: str
    window_us: int
    quota: int
    capacity: int
    overshoot_milli: int
    """Largest sum of overdraft allowances, in thousandths of the capacity; 0 means strict, UNBOUNDED infinite."""
    charged: int
    """Cost charged since the node's account began. Never falls."""
    refunded: int
    """Cost given back since the node's account began. Never falls."""
    variant: str = ""
    """Distinguishes the limit's cells from others of the same name, algorithm and window: "first-hit", "interval" for a
    bucket that refills in steps, "calendar@" and a time zone; empty for all others."""
    withheld: int = 0
    """How much of a bucket's capacity a new key begins without."""
    window: int = 0
    """The number of the node's present window, if the limit follows a calendar, as the hub does not know calendars."""
    opens_us: int = 0
    closes_us: int = 0
    """When the window of number `window` ends; 0 if the limit follows no calendar."""
    interval_us: int = 0
    """The sync interval of the limit; 0 if it is the batch's."""
    apart: int = 0
    """The part of the capacity that is not this region's own: other regions have it, or lend it; 0 without regions."""
    lease_us: int = 0
    """How long allowances on the limit's cells belong to the node after a batch, if that is shorter than the batch's
    lease; 0 means the batch's lease. Sent in the place of `window`, see `sent_limit`; for a calendar it is always the
    batch's."""


_WINDOW: Final = LimitReport._fields.index("window")


def sent_limit(limit: LimitReport) -> tuple[str | int, ...]:
    """Returns the fields of a limit's report in the order in which they are sent.

    The lease of a limit without a calendar is sent as its `window`, which is otherwise unused. A hub of an older
    version ignores that, and holds the allowances for the lease of the batch, which is longer. So old and new versions
    work together.
    """
    if limit.closes_us == 0 and limit.lease_us:
        return (*limit[:_WINDOW], limit.lease_us, *limit[_WINDOW + 1 : -1])
    return limit[:-1]


def heard_limit(limit: LimitReport) -> LimitReport:
    """Returns the report of a limit from the fields that `sent_limit` has sent."""
    return limit if limit.closes_us else limit._replace(window=0, lease_us=limit.window)


COUNTED_AS: Final = {GCRA: TOKEN_BUCKET, SLIDING_SLICES: SLIDING_LOG}
"""The algorithms that a hub counts as it counts another one, in the same cells."""


def cells_of(limit: LimitReport) -> tuple[str, str, int, str]:
    """Returns what identifies the cells of a limit: name, way of counting, window, variant.

    Reports of one key are about the same cell if and only if these four are the same.
    """
    return limit.name, COUNTED_AS.get(limit.algorithm, limit.algorithm), limit.window_us, limit.variant


class CellReport(NamedTuple):
    """One node's counts, allowances and needs for one key."""

    limit: int
    """The place of its limit in the batch."""
    key: str
    epoch: int
    """The number of the window that `current` belongs to; if windows begin with the first hit, the moment at which that
    one began, or -1 while none is open."""
    current: int
    """The cost charged in this window; for a bucket, since the cell began; for charges with dates, all in use."""
    previous: int
    """The cost charged in the window before; for a bucket, its level in thousandths; for charges with dates, for how
    many microseconds any of them may still be in use."""
    allowance: int
    base: int
    """The allowance with which the next window starts; fixed windows only."""
    overdraft: int
    """How far past its allowance the node may go in calm times."""
    need_milli: int
    """The use that the node expects until the next exchange, in thousandths."""
    ask: int
    """The largest cost refused since the last exchange, 0 when none was."""
    asked: int
    """Cost asked for since the last exchange, admitted or not; see also FORGOTTEN and ASKS."""
    demand_milli: int
    """Cost asked for per second, admitted or not, in thousandths."""
    window_demand: int
    """Cost asked for in this window, admitted or not."""
    reset_us: int
    """Charges before this moment are forgotten; 0 when the key was never reset."""

    @property
    def forgotten(self) -> bool:
        """Whether the node forgets the key once this report is answered: it holds and needs nothing.

        The node will not report that use again. From here on the hub counts it as the use of a node that has left, so
        the node may begin the same key anew, from zero, under the same name.
        """
        held = self.allowance or self.base or self.overdraft
        return self.asked == FORGOTTEN and not (held or self.need_milli or self.demand_milli)

    @property
    def asks(self) -> bool:
        """Returns whether requests on the node ask the hub about this key when they are in doubt."""
        return ASKS <= self.asked <= ASKS + FLOATS + WAITING_MAX

    @property
    def floats(self) -> bool:
        """Returns whether the key is a bucket of which the node holds only the hub's last grant; see FLOATS."""
        return self.asks and self.asked >= ASKS + FLOATS

    @property
    def waiting(self) -> int:
        """Returns the cost of the requests that wait for the answer."""
        return (self.asked - ASKS) % FLOATS if self.asks else 0


@runtime_checkable
class Rows(Protocol):
    """Cell reports that can be packed as `REPORT_ROWS` describes, without their keys."""

    def rows(self) -> bytes:
        """Returns the packed rows one after the other: narrow ones if all amounts fit into them, else wide ones."""
        ...

    def names(self, prefixes: Sequence[bytes]) -> list[bytes]:
        """Returns the key of each report in UTF-8, after the prefix of its limit."""
        ...


def rows_of(cells: Sequence[CellReport]) -> Rows | None:
    """Returns the cells if they are `Rows`; else None."""
    return cast(Rows, cells) if _is_rows(type(cells)) else None


@cache
def _is_rows(kind: type) -> bool:
    """Whether a class implements `Rows`; remembered for each class.

    Python 3.11 looks up all members of a protocol each time, which would take 2 % of an exchange.
    """
    return issubclass(kind, Rows)


class Batch(NamedTuple):
    """All that one node reports in one exchange with one shard of the hub."""

    node: str
    """The node's name: new for every start of a process, for every fork, and after every lease that ended."""
    account: str
    """The name under which the lifetime numbers are kept; new for every start and fork."""
    shard: int
    sequence: int
    """Rises with every batch of this node to this shard; the hub ignores all but the newest."""
    generation: str
    """The hub's data as this node last saw them; empty before the first answer."""
    interval_us: int
    """The sync interval of this node, and of all limits without one of their own."""
    lease_us: int
    """How long the node's allowances are its own after this batch."""
    leaving: bool
    """Whether this is the node's last batch, after which it holds no allowances any more."""
    limits: tuple[LimitReport, ...]
    cells: Sequence[CellReport]


class CellAnswer(NamedTuple):
    """The hub's answer about one key, with the allowances that it grants to the node that has reported."""

    epoch: int
    """The number of the hub's window, counted as in a report; negative while none is open."""
    allowance: int
    """How far the node may go by itself. For a key that is kept at the hub: with a sliding window, how much the node
    may charge in the window `epoch` and in no other, beside its other use; with a bucket, how much beyond its reported
    charges."""
    base: int
    overdraft: int
    capacity: int
    """The smallest capacity among the live nodes; the allowances of all sum to at most this."""
    free: int
    """The part of the capacity that is granted to no node."""
    reserved: int
    """The amount that the hub saves up for another node whose ask was refused first."""
    current: int
    """The cost charged by all nodes in this window; for a bucket, the merged fill in thousandths; for charges with
    dates, all that nodes have in use."""
    previous: int
    """The cost charged by all nodes in the window before; for a bucket, the sum of the nodes' fills in thousandths."""
    silent: int
    """Unused allowances of nodes that have not reported lately; they may be in use."""
    needs_milli: int
    demand_milli: int
    nodes: int
    """How many nodes need this key, plus AT_HUB if it is kept at the hub; NOT_TAKEN if the hub has no room for it."""
    last_demand: int
    """Cost asked for by all nodes in the window before."""
    window_demand: int
    """Cost asked for by all nodes in this window."""
    reset_us: int


class AnswerRows(Sequence[CellAnswer]):
    """Cell answers in the packed rows in which they were received; each becomes a `CellAnswer` when it is read."""

    __slots__ = ("raw", "wide")

    def __init__(self, raw: bytes, *, wide: bool) -> None:
        self.raw = raw
        self.wide = wide

    @overload
    def __getitem__(self, index: int) -> CellAnswer: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[CellAnswer]: ...
    def __getitem__(self, index: int | slice) -> CellAnswer | Sequence[CellAnswer]:
        return tuple(self)[index]

    def __iter__(self) -> Iterator[CellAnswer]:
        return map(CellAnswer._make, ANSWER_ROWS[self.wide].iter_unpack(self.raw))

    def __len__(self) -> int:
        return len(self.raw) // ANSWER_ROWS[self.wide].size

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(tuple(self))


class Answer(NamedTuple):
    """The hub's answer to one batch; if that was merged, one cell answer for each cell report, in the same order."""

    hub_us: int
    """The hub's clock when it merged the batch."""
    generation: str
    status: Status
    cells: Sequence[CellAnswer]


REPORT_ROW: Final = ("epoch", "reset_us", "limit", *CellReport._fields[3:-1])
"""The fields of a cell report's row: all without the key, those that have 64 bits in any case first.

`reports.c` and `exchange.lua` repeat them; `tests/hub/test_row_layout.py` compares.
"""
REPORT_ROWS: Final = (Struct("<qqIi9I"), Struct(f"<{len(REPORT_ROW)}q"))
"""The two formats of a cell report's row in messages, narrow and wide. All numbers are little-endian."""
report_row: Final = cast(
    "Callable[[CellReport], tuple[int, ...]]", itemgetter(*map(CellReport._fields.index, REPORT_ROW))
)
"""Returns the numbers of a cell report's row."""


def report_of_row(key: str, row: Sequence[int]) -> CellReport:
    """Returns the report about a key from its row of numbers."""
    epoch, reset_us, limit, *others = row
    return CellReport._make((limit, key, epoch, *others, reset_us))


ANSWER_ROWS: Final = (Struct("<q14iq"), Struct(f"<{len(CellAnswer._fields)}q"))
"""The two formats of a cell answer in messages, narrow and wide: its fields in their order, as in `plausible.c`."""


class Wish(NamedTuple):
    """A cell of a region's hub that needs more than the region's own part, or that has a loan."""

    cell: str
    """The hub's own name for it; the same in all regions whose hubs are of one kind."""
    limit: str
    capacity: int
    """The capacity of the whole limit."""
    quota: int
    window_us: int
    own: int
    """The region's own part of the capacity, as far as its live nodes agree."""
    used: int
    """The use of all nodes of the region, as far as it counts, rounded up."""
    needs_milli: int
    demand_milli: int
    reserved: int
    """The amount that the node lacks whose ask was refused first."""
    fades_us: int
    """For how long, in addition to a lease, charges that a node makes now can count."""
    heard_us: int
    """When a node last reported the cell."""


class Wishes(NamedTuple):
    """The wishes of one shard of a region's hub."""

    hub_us: int
    generation: str
    """Empty as long as no node has reported anything."""
    lease_us: int
    """The longest lease among the region's nodes."""
    wishes: tuple[Wish, ...]


class Loan(NamedTuple):
    """How much more of a cell's capacity a region may use, and until when by its hub's clock."""

    cell: str
    amount: int
    until_us: int


class Lent(NamedTuple):
    """The result of loans, one for each in their order."""

    hub_us: int
    generation: str
    status: Status
    """STALE if the lender has sent a newer call; then nothing was changed."""
    held: tuple[int, ...]
    """How much of each loan is, or may be, in use: no less than was lent now; -1 if there is no such cell."""


class Totals(NamedTuple):
    """The charges and refunds of all nodes to one limit, since the hub's data began."""

    charged: int
    refunded: int

    @property
    def net(self) -> int:
        """Returns the charges less the refunds."""
        return self.charged - self.refunded


def add_totals(sums: dict[str, Totals], more: Mapping[str, Totals]) -> None:
    """Adds the totals in `more` to those of the same limits in `sums`."""
    for name, totals in more.items():
        known = sums.get(name, Totals(0, 0))
        sums[name] = Totals(known.charged + totals.charged, known.refunded + totals.refunded)
