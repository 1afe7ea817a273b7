"""Messages of nodes, a hub and an exporter about usage: periods, rows, batches, events.

Counts are whole numbers and absolute for one account; moments are microseconds of the hub's clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from zlib import crc32

from reconverge.hub.report import WHOLE_MAX

MINUTE: Final = "minute"
HOUR: Final = "hour"
DAY: Final = "day"
MONTH: Final = "month"
KINDS: Final = (MINUTE, HOUR, DAY, MONTH)
"""The kinds of periods, the shortest first. All follow UTC."""
LENGTH_MS: Final[Mapping[str, int]] = {MINUTE: 60_000, HOUR: 3_600_000, DAY: 86_400_000, MONTH: 31 * 86_400_000}
"""How long a period of each kind lasts at most."""
AHEAD_MS: Final = 300_000
"""How long before a period begins, by the hub's clock, its usage is accepted: clocks that follow a time server differ
by less. Usage that is dated further ahead comes from a clock that is wrong."""
MONTHS: Final = 12
EPOCH_YEAR: Final = 1970
PAGES: Final = 16
"""Into how many parts a shard divides the rows of one period, so that no script goes through more than one part."""
ROWS_MAX: Final = 4096
"""The most rows of one page at a hub; with 16 pages 65,536 keys of a period in each shard. A script that reads a whole
page of them holds up a Redis for a few milliseconds."""
BATCH_ROWS_MAX: Final = 256
"""About the most rows of one batch. A Redis on a busy machine took 12 us for each, so no other node waits for longer
than 3 ms for the batch of this one."""
EVENTS_MAX: Final = 500
"""The most events that one call issues."""
SEQUENCE_KEPT_MS: Final = 2 * 86_400_000
"""How long a hub remembers an account that is silent or gone; no network delays a message for longer."""
LOAD_KEPT_US: Final = 120 * 1_000_000
"""A node that has reported no load for this long counts as gone. A new account's first batch makes the hub forget such
nodes."""
REGISTERS: Final = 256
"""The size in bytes of the sketch by which the addresses of one identity are counted. Four times as many would halve
the error."""
SKETCHES_MAX: Final = 5000
"""The most identities of one hour whose addresses a node or a shard counts: 1.5 MB. Later ones are left out."""
SKETCHES_REPORTED_MAX: Final = 64
"""The most identities in one report of addresses, so that a script of a Redis is over within a few milliseconds."""
SKETCHES_KEPT_HOURS: Final = 2
"""For how many hours a hub keeps sketches; those of the last hour for as long after their last change."""
SECRET_KEPT_MS: Final = 2 * 86_400_000
"""How long a hub keeps the secret by which addresses are hashed after a node has asked for it last."""
OTHERS: Final = "(others)"
"""The identity under which usage is counted for which there is no room."""
_DAYS_TO_MARCH_1970: Final = 365 * 1970 + 1970 // 4 - 1970 // 100 + 1970 // 400
"""Days in the count of `period_start_s`."""


class Period(NamedTuple):
    """One minute, hour, day or month, by its number since 1970."""

    kind: str
    number: int

    def __str__(self) -> str:
        return f"{self.kind}{self.number}"


class UsageKey(NamedTuple):
    """The dimensions that usage is counted by."""

    identity: str
    limit: str
    route: str


class Counts(NamedTuple):
    """The usage under one key: numbers of requests and their costs."""

    cost: int
    """The cost charged, less the cost given back."""
    requests: int
    """Requests that were admitted."""
    refused: int
    """Requests that were refused; they are charged nothing."""


NOTHING: Final = Counts(0, 0, 0)


class UsageRow(NamedTuple):
    """The usage under one key in one period."""

    period: Period
    key: UsageKey
    counts: Counts


class Retention(NamedTuple):
    """How many periods of each kind a hub keeps after their end."""

    minute: int = 180
    hour: int = 960
    """40 days, so that an exporter of hours that was away for a month catches up."""
    day: int = 92
    month: int = 14

    def keep_ms(self, kind: str) -> int:
        """Returns for how many milliseconds a period is kept after its last change.

        That is longer than the time in which records of it are accepted.
        """
        return (int(getattr(self, kind)) + 1) * LENGTH_MS[kind] + AHEAD_MS


SKETCHES_RETENTION: Final = Retention(hour=SKETCHES_KEPT_HOURS - 1)
"""The hour that it is by the hub's clock, and the one before."""


class NodeLoad(NamedTuple):
    """The load of one node."""

    node: str
    requests_per_s: float
    cost_per_s: float
    at_us: int
    """When the node reported the load, by the hub's clock; 0 in a node's report."""


class UsageBatch(NamedTuple):
    """The counts of one node's account that it reports to one shard at once, at most about BATCH_ROWS_MAX rows."""

    account: str
    """New for every start of a process and every fork."""
    shard: int
    sequence: int
    """Rises with every batch of this account to this shard; the hub merges none that has not risen."""
    answered: int
    """The sequence of the last merged batch whose answer the node has. A hub that has only an earlier one has lost
    reports, and merges nothing until the node knows of that."""
    rows: Sequence[UsageRow]
    """The account's own counts, absolute, of keys of that shard. All kinds of periods of one key are in one batch, so
    that sums over minutes and over months agree after a crash, too."""
    kept: Retention
    leaving: Sequence[Period] | None = None
    """In the account's last batch, the periods of its rows, which it will not replace any more. None in earlier
    batches."""
    load: NodeLoad | None = None


class Recorded(NamedTuple):
    """A hub's answer to a batch."""

    known: int
    """The sequence of the last batch of this account that the hub knew before this one; 0 if it knew none."""
    merged: bool
    folded: int
    """How many rows went to OTHERS, because the hub has no room for further ones."""
    done: Mapping[str, int]
    """By kind, the period up to which all usage was exported and delivered."""
    hub_us: int = 0
    """The hub's clock when it answered."""
    refused: Sequence[int] = ()
    """The places in the batch of the rows that the hub did not count because of their date; see `counted_us`. It has
    nothing of this account in these rows, so their counts may be reported again under another date."""


class ExportLease(NamedTuple):
    """The exporter that leads, and until when, by the hub's clock."""

    leads: bool
    """Whether the leader is the exporter that has asked."""
    exporter: str
    until_us: int
    hub_us: int


class AddressReport(NamedTuple):
    """The report of one node to one shard about the addresses of at most SKETCHES_REPORTED_MAX identities.

    A hub accepts the report in that hour and the next one, by its own clock (see `counted_us`), and ignores it later.
    """

    hour: int
    """The number of the hour since 1970, by the node's clock."""
    shard: int
    secret: bytes
    """The secret with which the node hashes addresses; sketches with different secrets are kept apart."""
    risen: Mapping[str, bytes]
    """By identity, the registers that have risen: two bytes for each, its number and its rank."""


class UsageEvent(NamedTuple):
    """One exported amount: the usage under a key in a period, beyond that of earlier events."""

    period: Period
    key: UsageKey
    number: int
    """0 for the first event of a key and period; further events have the usage that came late."""
    counts: Counts


class ExportMarks(NamedTuple):
    """The progress of the export of one kind of periods, at one shard."""

    first: int | None
    """The first period of that kind in which anything was recorded; None if nothing was."""
    closed: int | None
    """The period up to which events may have been issued; usage that is recorded there from then on is late."""
    done: int | None
    """The period up to which all issued events were confirmed as delivered."""
    late: Mapping[int, int]
    """Closed periods in which something was recorded since they were exported last, each with a mark."""


def period_start_s(period: Period) -> int:
    """Returns when a period begins, in seconds since 1970."""
    if period.kind != MONTH:
        return period.number * (LENGTH_MS[period.kind] // 1000)
    # Years are counted from March, so that February with its leap day is the last month of a year.
    year, month = divmod(period.number - 2, MONTHS)
    year += EPOCH_YEAR
    leap_days = year // 4 - year // 100 + year // 400
    return (365 * year + leap_days + (153 * month + 2) // 5 - _DAYS_TO_MARCH_1970 + 59) * 86_400


def period_end_s(period: Period) -> int:
    """Returns when a period ends and the next begins, in seconds since 1970."""
    return period_start_s(Period(period.kind, period.number + 1))


def counted_us(period: Period, kept: Retention) -> tuple[int, int]:
    """Returns from when and until when a hub accepts new records of a period, by its clock, in microseconds.

    An account may replace its earlier records of the period at any time, as the hub keeps them longer
    (`Retention.keep_ms`).
    """
    last = Period(period.kind, period.number + int(getattr(kept, period.kind)))
    return (period_start_s(period) * 1000 - AHEAD_MS) * 1000, min(period_end_s(last) * 1_000_000, WHOLE_MAX)


def field_of(key: UsageKey) -> bytes:
    """Returns the name of a key at hubs, in bytes. Keys contain no NUL."""
    return "\0".join(key).encode("utf-8", "surrogatepass")


def key_of(field: bytes) -> UsageKey:
    """Returns the key that `field_of` has turned into `field`. Raises ValueError for anything else."""
    identity, limit, route = field.decode("utf-8", "surrogatepass").split("\0")
    return UsageKey(identity, limit, route)


def shard_of(identity: str, shards: int) -> int:
    """Returns the shard that keeps the usage of an identity; it is the same on all nodes."""
    return crc32(identity.encode("utf-8", "surrogatepass")) % shards


def page_of(field: bytes) -> int:
    """Returns the page of a shard that keeps a key."""
    return crc32(field) % PAGES


def others_route(shard: int, page: int) -> str:
    """Returns the route under which a hub counts usage for which it has no room.

    Each page has its own, so that no two rows of a fleet have the same key.
    """
    return f"(hub {shard}.{page})"
