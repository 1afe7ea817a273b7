"""The messages of one exchange: a node's batch of reports, and the hub's answer.

Amounts are whole numbers of cost, or of thousandths where the name ends in `_milli`; moments are microseconds of the
hub's clock. All numbers are sums or states, not increments: a repeated message changes nothing.
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
"""The value of `nodes` in an answer that means: the hub has no room for this key, stores nothing of it and grants
nothing. All other fields are those of an unused key with nothing free."""
FORGOTTEN = 2**31 - 1
"""The value of `asked` in the last report about a key that the node then forgets; see `CellReport.forgotten`. The value
of `nodes` in the answer if the hub goes on counting the use that the node has reported."""
ASKS = 2**31
"""Added to `asked` in a report if requests on the node ask the hub when the node is in doubt. The rest of `asked` is
then the cost of the requests that wait for the answer."""
AT_HUB = 2**30
"""Added to `nodes` in the answer to a report with ASKS if the hub keeps the key's free capacity, and has granted only
the cost of the waiting requests; see `CellAnswer.allowance`."""
FLOATS = 2**30
"""Added to ASKS in a report about a bucket whose free capacity the hub keeps (AT_HUB). The hub then adds to its own
bucket the node's charges since its last report, and `previous`: what has drained of the returned allowance since.

In a report about a fixed window, it means that the node does not begin the next window with `base` while it hears the
hub: either it has no base, or its base is a sealed share; see SEALED."""
SEALED = 2**29
"""Added to `nodes` beside AT_HUB if `base`, in the answer about a fixed window, is a sealed share: with it the node
begins only windows that begin while the hub is silent. The hub sends it only in answer to a report with FLOATS."""
WAITING_MAX = FLOATS - 1
"""The largest cost of waiting requests in a report."""


class Status(IntEnum):
    """How a hub has dealt with a batch."""

    MERGED = 0
    STALE = 1
    """A newer batch of this node had arrived before this one: nothing of it was merged."""
    LAPSED = 2
    """The hub counts this node as gone: nothing was merged, and the node must take a new name."""


class LimitReport(NamedTuple):
    """The declaration of one limit on this node, and the node's total charges to it."""

    name: str
    algorithm: str
    window_us: int
    quota: int
    capacity: int
    overshoot_milli: int
    """The largest sum of all nodes' overdrafts, in thousandths of the capacity; 0 for a strict limit, UNBOUNDED for no
    bound."""
    charged: int
    """The cost charged under the node's account (`Batch.account`) since the account began; never falls."""
    refunded: int
    """The cost given back under the node's account since the account began; never falls."""
    variant: str = ""
    """A word that keeps limits of the same name, algorithm and window apart at the hub: "first-hit"; "interval" for a
    bucket that refills in steps; "calendar@" and a time zone; empty for all others."""
    withheld: int = 0
    """The part of a bucket's capacity that a new key begins without."""
    window: int = 0
    """If the limit follows a calendar: the number of the node's present window, as the hub does not know calendars."""
    opens_us: int = 0
    closes_us: int = 0
    """When the window of number `window` ends; 0 if the limit follows no calendar."""
    interval_us: int = 0
    """The sync interval of the limit; 0 if it is the interval of the batch."""
    apart: int = 0
    """The part of the capacity that belongs to other regions, some of which they may lend; 0 without regions."""
    lease_us: int = 0
    """How long the node may use allowances on this limit after a batch, if that is shorter than the batch's lease; 0
    for the batch's lease, as for all calendar limits. Sent in the place of `window`; see `sent_limit`."""


_WINDOW: Final = LimitReport._fields.index("window")


def sent_limit(limit: LimitReport) -> tuple[str | int, ...]:
    """Returns the fields of a limit's report in the order in which they are sent.

    A limit without a calendar does not use its field `window`, so its lease is sent there. A hub of an older version
    ignores the field, and reserves the allowances for the lease of the batch, which is longer. So old and new versions
    work together.
    """
    if limit.closes_us == 0 and limit.lease_us:
        return (*limit[:_WINDOW], limit.lease_us, *limit[_WINDOW + 1 : -1])
    return limit[:-1]


def heard_limit(limit: LimitReport) -> LimitReport:
    """Returns the report of a limit from the fields that `sent_limit` returned; the inverse of `sent_limit`."""
    return limit if limit.closes_us else limit._replace(window=0, lease_us=limit.window)


COUNTED_AS: Final = {GCRA: TOKEN_BUCKET, SLIDING_SLICES: SLIDING_LOG}
"""For some algorithms, the algorithm as which a hub counts them, in the same cells."""


def cells_of(limit: LimitReport) -> tuple[str, str, int, str]:
    """Returns the four values of a limit that identify its cells: name, algorithm as counted, window and variant.

    A cell is a hub's record of one key. Two reports of one key are about the same cell if these four are equal.
    """
    return limit.name, COUNTED_AS.get(limit.algorithm, limit.algorithm), limit.window_us, limit.variant


class CellReport(NamedTuple):
    """One node's counts, allowances and needs for one key. Charges with dates are those of a sliding log or slices."""

    limit: int
    """The index, among the batch's limits, of the limit to which the key belongs."""
    key: str
    epoch: int
    """The number of the window that `current` belongs to. If windows begin with the first hit: the moment at which that
    window began, or -1 while no window is open."""
    current: int
    """The cost charged in this window; for a bucket, since the cell began; for charges with dates, all that counts."""
    previous: int
    """The cost charged in the window before; for a bucket, its level in thousandths; for charges with dates, for how
    many microseconds any of them may still count."""
    allowance: int
    base: int
    """For fixed windows, the allowance with which the node begins the next window, or its sealed share (FLOATS). For
    sliding windows, the node's sealed share, which it may use if the hub falls silent. For charges with dates, for
    how many microseconds certainly none of them expires."""
    overdraft: int
    """The amount by which the node may exceed its allowance while the fleet is calm."""
    need_milli: int
    """The use that the node expects until its next exchange, in thousandths of a unit."""
    ask: int
    """The largest cost of a request refused since the last exchange; 0 if none was refused."""
    asked: int
    """The cost of all requests since the last exchange, admitted or not; or a special value, see FORGOTTEN and ASKS."""
    demand_milli: int
    """The cost of all requests per second, admitted or not, in thousandths."""
    window_demand: int
    """The cost of all requests in this window, admitted or not."""
    reset_us: int
    """The moment of the key's last reset, before which no charge counts any more; 0 if the key was never reset."""

    @property
    def forgotten(self) -> bool:
        """Returns whether the node forgets the key once this report is answered: it has no allowance and needs none.

        The node will not report its use of the key again, and the hub counts that as use of a node that has left. So
        the node may count the same key anew, from zero, under its own old name.
        """
        held = self.allowance or self.base or self.overdraft
        return self.asked == FORGOTTEN and not (held or self.need_milli or self.demand_milli)

    @property
    def asks(self) -> bool:
        """Returns whether requests on the node ask the hub about this key when the node is in doubt."""
        return ASKS <= self.asked <= ASKS + FLOATS + WAITING_MAX

    @property
    def floats(self) -> bool:
        """Returns whether the node holds only what the hub last granted, or begins no window with its base (FLOATS)."""
        return self.asks and self.asked >= ASKS + FLOATS

    @property
    def waiting(self) -> int:
        """Returns the cost of the requests on the node that wait for the hub's answer."""
        return (self.asked - ASKS) % FLOATS if self.asks else 0


@runtime_checkable
class Rows(Protocol):
    """Reports of several keys that can be packed together into rows, in the format of `REPORT_ROWS`."""

    def rows(self) -> bytes:
        """Returns the packed rows of all reports: rows of 32-bit amounts if all amounts fit, else of 64-bit amounts."""
        ...

    def names(self, prefixes: Sequence[bytes]) -> list[bytes]:
        """Returns the keys of all reports in UTF-8, each with `prefixes[report.limit]` before it."""
        ...


def rows_of(cells: Sequence[CellReport]) -> Rows | None:
    """Returns the cells if they are `Rows`; else None."""
    return cast(Rows, cells) if _is_rows(type(cells)) else None


@cache
def _is_rows(kind: type) -> bool:
    """Returns whether a class implements `Rows`; cached, as Python 3.11 looks up a protocol's members at each check."""
    return issubclass(kind, Rows)


class Batch(NamedTuple):
    """All reports that one node sends to one shard of the hub in one exchange."""

    node: str
    """The node's name: new for every start of a process, for every fork, and after every lease that ended."""
    account: str
    """The name under which the hub sums up the node's charges to each limit; new for every start and fork."""
    shard: int
    sequence: int
    """A number that rises with every batch of this node to this shard; the hub ignores a batch unless its number is the
    highest."""
    generation: str
    """The name of the hub's data, by its last answer to this node; empty before that. It changes when data are lost."""
    interval_us: int
    """The sync interval of this node, which holds for each limit that has none of its own."""
    lease_us: int
    """For how long after this batch the node may use its allowances."""
    leaving: bool
    """Whether this is the node's last batch, after which it uses no allowance any more."""
    limits: tuple[LimitReport, ...]
    cells: Sequence[CellReport]
    heard_us: int = 0
    """The hub's time in the last answer to the node, 0 before the first one. It decides when the node may use sealed
    shares, its allowances for the time when the hub is silent (`hub/headroom.py`)."""


class CellAnswer(NamedTuple):
    """The hub's answer about one key, with the allowances that it grants to the node that has reported the key."""

    epoch: int
    """The number of the hub's present window, as in `CellReport.epoch`; negative while no window is open."""
    allowance: int
    """The use up to which the node may admit by itself. If the hub keeps the key's free capacity (AT_HUB), that is: in
    a sliding window, only the charges in window `epoch`; in a bucket, only the charges after the reported ones."""
    base: int
    overdraft: int
    capacity: int
    """The smallest capacity that a live node declares; the allowances of all nodes sum to at most this."""
    free: int
    """The part of the capacity that is granted to no node."""
    reserved: int
    """The free amount that the hub reserves for another node, which had to refuse a request earlier."""
    current: int
    """The cost charged by all nodes in this window; for a bucket, its merged level in thousandths; for charges with
    dates, the use that still counts."""
    previous: int
    """The cost charged by all nodes in the window before; for a bucket, the sum of the nodes' levels in thousandths;
    for charges with dates, for how many microseconds no charge of another node expires, 0 if one may have expired."""
    silent: int
    """The unused allowances of nodes that have not reported lately, which may have used them."""
    needs_milli: int
    demand_milli: int
    nodes: int
    """How many nodes need this key, plus AT_HUB if the hub keeps its free capacity, plus SEALED if `base` is a share of
    a fixed window; NOT_TAKEN if the hub has no room for the key."""
    last_demand: int
    """The cost of all requests on all nodes in the window before, admitted or not."""
    window_demand: int
    """The cost of all requests on all nodes in this window, admitted or not."""
    reset_us: int


class AnswerRows(Sequence[CellAnswer]):
    """Cell answers, stored as the packed rows that were received; iteration makes a `CellAnswer` of each row."""

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


class Recall(NamedTuple):
    """The hub's request to all nodes to report a key, because a node lacks capacity that other nodes hold unused."""

    limit: str
    """The name of the limit at the hub."""
    key: str
    needs_milli: int
    """The needs of all nodes together, in thousandths of cost."""


class Answer(NamedTuple):
    """The hub's answer to a batch. If the batch was merged, `cells` has an answer for each cell report, in order."""

    hub_us: int
    """The hub's clock when it merged the batch, in microseconds."""
    generation: str
    status: Status
    cells: Sequence[CellAnswer]
    recalls: tuple[Recall, ...] | None = None
    """The keys of which another node has begun to lack capacity since this node's previous batch. None if the hub does
    not recall keys; nodes then report a key more often."""
    nodes: int = 0
    """How many nodes hold a lease at this shard, including the answered node; 0 if the hub does not report it."""


REPORT_ROW: Final = ("epoch", "reset_us", "limit", *CellReport._fields[3:-1])
"""The fields in the row of a cell report: all but the key; fields that always have 64 bits come first.

`reports.c` and `exchange.lua` repeat them; `tests/hub/test_row_layout.py` compares.
"""
REPORT_ROWS: Final = (Struct("<qqIi9I"), Struct(f"<{len(REPORT_ROW)}q"))
"""The two formats of a cell report's row in messages: with 32-bit amounts, and wide. All numbers are little-endian."""
report_row: Final = cast(
    "Callable[[CellReport], tuple[int, ...]]", itemgetter(*map(CellReport._fields.index, REPORT_ROW))
)
"""Returns the fields of a cell report as the numbers of its row, in the order of REPORT_ROW."""


def report_of_row(key: str, row: Sequence[int]) -> CellReport:
    """Returns the cell report of `key` whose other fields are the numbers in `row`."""
    epoch, reset_us, limit, *others = row
    return CellReport._make((limit, key, epoch, *others, reset_us))


ANSWER_ROWS: Final = (Struct("<q14iq"), Struct(f"<{len(CellAnswer._fields)}q"))
"""The two formats of a cell answer, with 32-bit amounts and wide: its fields in their order, as in `plausible.c`."""


class Wish(NamedTuple):
    """A key at a region's hub that needs more than the region's own part of the capacity, or has a loan already."""

    cell: str
    """The name of the key's counts at the hub; it is the same in all regions whose hubs are of one kind."""
    limit: str
    capacity: int
    """The capacity of the limit in all regions together."""
    quota: int
    window_us: int
    own: int
    """The region's own part of the capacity: the smallest that a live node declares."""
    used: int
    """The use by all nodes in the region that still counts, rounded up."""
    needs_milli: int
    demand_milli: int
    reserved: int
    """The cost that the longest-waiting node lacks for its refused request; 0 if none waits."""
    fades_us: int
    """For how many microseconds a charge that a node makes now can count, beyond the end of a lease."""
    heard_us: int
    """When a node last reported the key, in microseconds of the hub's clock."""


class Wishes(NamedTuple):
    """A hub's list of the keys that need loans of capacity from other regions, for one shard of a region."""

    hub_us: int
    generation: str
    """The name of the hub's data; empty if no node has reported anything yet."""
    lease_us: int
    """The longest lease among the region's nodes, in microseconds."""
    wishes: tuple[Wish, ...]


class Loan(NamedTuple):
    """A loan to a region: how much more of a key's capacity it may use, and until when by its hub's clock."""

    cell: str
    amount: int
    until_us: int


class Lent(NamedTuple):
    """The result of a call of `Region.lend`, with one amount for each loan, in the order of the loans."""

    hub_us: int
    generation: str
    status: Status
    """STALE if a newer call of the same lender had arrived before this one, which then changed nothing."""
    held: tuple[int, ...]
    """For each loan, the amount that nodes hold or may hold: no less than this call has lent; -1 if the hub does not
    know the key."""


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
