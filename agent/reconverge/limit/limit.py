"""The limit: a quota of cost per window, for each key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import floor
from typing import TYPE_CHECKING, Any, Final

from reconverge.arguments import with_advice
from reconverge.clock import MICROSECOND_NS, MILLISECOND_NS, SECOND_NS, Seconds, in_seconds
from reconverge.errors import InvalidLimit, asked, shown
from reconverge.limit.calendar import UNITS, CalendarWindows, is_zone, unit_of
from reconverge.limit.checks import NAME_LENGTH_MAX, check_max_debt, check_soft, checked_costs
from reconverge.limit.grammar import Quota, parse_quotas

FIXED_WINDOW: Final = "fixed-window"
SLIDING_WINDOW: Final = "sliding-window"
SLIDING_SLICES: Final = "sliding-slices"
SLIDING_LOG: Final = "sliding-log"
TOKEN_BUCKET: Final = "token-bucket"  # noqa: S105  # no password
GCRA: Final = "gcra"
LEAKY_BUCKET: Final = "leaky-bucket"
SMOOTH_BURSTY: Final = "smooth-bursty"
SMOOTH_WARMING_UP: Final = "smooth-warming-up"
CONCURRENCY: Final = "concurrency"

# `kernel/algorithms/registry.py` lists what else a new algorithm needs.
# The algorithms that count a rate. A limit on what is in progress counts none, and has other methods: `CONCURRENCY`.
ALGORITHMS: Final = (
    FIXED_WINDOW,
    SLIDING_WINDOW,
    SLIDING_SLICES,
    SLIDING_LOG,
    TOKEN_BUCKET,
    GCRA,
    LEAKY_BUCKET,
    SMOOTH_BURSTY,
    SMOOTH_WARMING_UP,
)
KNOWN_ALGORITHMS: Final = (*ALGORITHMS, CONCURRENCY)
"""The names of all algorithms that a `Limit` can have."""
ELSEWHERE: Final = {
    "moving-window": "sliding-log",
    "sliding-window-counter": "sliding-window",
    "sliding-window-log": "sliding-log",
}
"""Names that other libraries give to algorithms, each with the name to write here."""
BUCKETS: Final = (TOKEN_BUCKET, GCRA, LEAKY_BUCKET)
"""The algorithms in which use drains steadily. They share one arithmetic, because tokens, arrival times and the level
of a bucket are equivalent."""
FILLED: Final = (TOKEN_BUCKET, GCRA)
"""The algorithms with the settings `initial` and `refill`; a leaky bucket has neither, as its outflow is steady."""
DATED: Final = (SLIDING_SLICES, SLIDING_LOG)
"""Algorithms in which every charge has a date, counts in full until that expires, and then not at all."""
SMOOTH: Final = (SMOOTH_BURSTY, SMOOTH_WARMING_UP)
"""Algorithms that admit a request on credit, and the next request when the credit has been paid back."""
DRAINED: Final = (*BUCKETS, *SMOOTH)
"""Algorithms whose quota comes back steadily, and not at the end of a window."""
BURSTING: Final = (*BUCKETS, SMOOTH_BURSTY)
"""Algorithms that have a `burst`."""
PACED: Final = (LEAKY_BUCKET, *SMOOTH)
"""Algorithms in which a node's allowance is a part of the rate, and so is counted in parts of a request (`UNIT`)."""
METERED: Final = tuple(name for name in ALGORITHMS if name not in SMOOTH)
"""Algorithms that admit a request only if its cost fits into the quota; the `SMOOTH` algorithms admit on credit."""

CLOCK: Final = "clock"
FIRST_HIT: Final = "first-hit"
CALENDAR: Final = "calendar"
ALIGNMENTS: Final = (CLOCK, FIRST_HIT, CALENDAR)
"""The values of `Limit.align`: when fixed windows begin."""
UTC: Final = "UTC"

GREEDY: Final = "greedy"
INTERVAL: Final = "interval"
REFILLS: Final = (GREEDY, INTERVAL)
"""The values of `Limit.refill`: how the quota of a bucket comes back."""

QUOTA_MAX: Final = 10**12
"""The largest quota: thousandths of a cost must be exact integers, also in Lua's doubles, which end at 2**53."""
UNIT: Final = 1000
"""The number of parts into which `PACED` algorithms divide a request to count allowances; fewer for a very large
quota."""
CREDIT_WINDOWS_MAX: Final = 100
"""The most credit of a request under a smooth limit, beyond the stored permits: the quota of so many windows. A node
can report a need of up to a hundred capacities, so it can still report its debt, and is granted an allowance to pay it
off. Each node, and each start of a process, may use credit once, so a cost counts in the bound as often as there are
nodes. Without this maximum one wrong cost would block a key for good, and a restart would unblock it."""
WINDOW_MIN_NS: Final = MILLISECOND_NS
"""The shortest window: with a shorter one, the clock error between two machines would defeat the limit."""
WINDOW_MAX_NS: Final = 3660 * 86_400 * SECOND_NS
"""The longest window, ten years, in nanoseconds."""
SLOT_LEASE_S: Final = 5.0
"""The default lease of slots: the seconds for which the slots of a silent process stay taken."""
SLOT_LEASE_MAX_NS: Final = 600 * SECOND_NS
"""The longest lease of slots. It is also the longest lease that an agent chooses by itself."""
SLICES: Final = 10
SLICES_MAX: Final = 1000
"""The most slices into which a window is divided, because each key stores a count for every slice."""
LOG_QUOTA_MAX: Final = 100_000
"""The largest quota of a sliding log, as each key stores every charge, at about fifty bytes each on every node."""


@with_advice()
@dataclass(frozen=True, slots=True)
class Limit:
    """A quota of cost per window, counted by one algorithm, for each key on its own.

    `quota` is a whole number of cost, and 0 refuses everything. `window` and `warmup` are in seconds, each a number or
    a `timedelta`. `burst` is the capacity of a bucket (`token-bucket`, `gcra`, `leaky-bucket`), by default the quota;
    for `smooth-bursty` it is the most permits that are stored while there are no requests, by default one second's
    worth; other algorithms have none. `name` is the NAME of "as NAME" in a limit string, or None. `slices` is the
    number of parts into which `sliding-slices` divides the window, by default 10. With `count_refused`, `sliding-log`
    also counts requests that were refused, by this quota or by another of the same limit, so that a client that goes on
    asking stays out. `warmup` is how many seconds `smooth-warming-up` takes from cold to the full rate.

    `align` is when fixed windows begin: "clock", at multiples of the window; "first-hit", with the first charge after
    the window before; "calendar", with the day, week, month or year of `timezone` (an IANA name). With "calendar", a
    window of 1, 7, 30 or 360 days means a day, week, month or year. For buckets, `initial` is how much a new key may
    use at once, by default the capacity, and `refill` is how the quota comes back: "greedy", steadily, or "interval",
    all of it at each multiple of the window.

    `concurrency` limits work in progress and not a rate: `quota` is the number of slots, there is no window, and
    `lease` is how many seconds the slots of a node that has fallen silent stay taken, by default 5. In a limit string,
    that is `20 in flight` or `20 concurrent lease 10s`.

    `soft` is a fraction: 0.1 means that requests up to 10 % beyond the quota are admitted, and flagged. `max_debt` is
    the cost by which `Reservation.settle` may push a key's use beyond the capacity; by default up to 10**12. `costs`
    maps a kind of request to the cost of one request; the cost under "*" is for all kinds that are not named.

    Raises:
        InvalidLimit: a value is of the wrong type or out of range, does not go with the algorithm, or the algorithm
            does not exist.
    """

    quota: int
    window: float = None  # type: ignore[assignment]  # None: the lease, set in __post_init__
    algorithm: str = SLIDING_WINDOW
    burst: int | None = None
    name: str | None = None
    slices: int | None = None
    count_refused: bool = False
    warmup: float | None = None
    align: str = CLOCK
    timezone: str = UTC
    initial: int | None = None
    refill: str = GREEDY
    soft: float = 0.0
    max_debt: int | None = None
    costs: Mapping[str, int] | None = field(default=None, hash=False)
    lease: float | None = None

    if TYPE_CHECKING:  # the fields hold numbers; the arguments may be timedeltas as well

        def __init__(
            self,
            quota: int,
            window: Seconds | None = ...,
            algorithm: str = ...,
            burst: int | None = ...,
            name: str | None = ...,
            slices: int | None = ...,
            count_refused: bool = ...,  # noqa: FBT001  # a field
            warmup: Seconds | None = ...,
            align: str = ...,
            timezone: str = ...,
            initial: int | None = ...,
            refill: str = ...,
            soft: float = ...,
            max_debt: int | None = ...,
            costs: Mapping[str, int] | None = ...,
            lease: Seconds | None = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        _check_numbers(self.quota, self.window, self.algorithm)
        object.__setattr__(self, "window", in_seconds(self.window))
        object.__setattr__(self, "warmup", in_seconds(self.warmup))
        object.__setattr__(self, "lease", in_seconds(self.lease))
        if self.algorithm == CONCURRENCY:
            self._check_slots()
        text = f"{shown(self.quota)}/{shown(self.window)}s"
        if self.lease is not None and self.algorithm != CONCURRENCY:
            raise InvalidLimit(
                text, f"only {CONCURRENCY} has the setting lease; leave it out, or set the agent's lease_ttl"
            )
        if self.algorithm not in KNOWN_ALGORITHMS:
            known = ", ".join(KNOWN_ALGORITHMS)
            if isinstance(self.algorithm, str) and self.algorithm in ELSEWHERE:
                known += f"; it is called {ELSEWHERE[self.algorithm]!r} here"
            else:
                known += asked(self.algorithm, KNOWN_ALGORITHMS)
            raise InvalidLimit(text, f"unknown algorithm {self.algorithm!r}; known: {known}")
        _check_quota(text, "quota", self.quota)
        if isinstance(self.window, bool) or not isinstance(self.window, int | float):
            raise InvalidLimit(text, f"the window {shown(self.window)} is not a number of seconds, as in Limit(5, 60)")
        if not WINDOW_MIN_NS <= self.window * SECOND_NS <= WINDOW_MAX_NS:
            raise InvalidLimit(
                text, f"the window of {shown(self.window)} s is not between 1 ms and ten years; it is in seconds"
            )
        if self.burst is not None:
            _check_quota(text, "burst", self.burst)
            if self.algorithm not in BURSTING:
                raise InvalidLimit(
                    text,
                    f"a burst needs a bucket ({', '.join(BUCKETS)}) or {SMOOTH_BURSTY}, not {self.algorithm}; omit it",
                )
        self._check_slices(text)
        self._check_alignment(text)
        self._check_refill(text)
        _check_warmup(text, self)
        if self.algorithm == SMOOTH_BURSTY and self.nominal > QUOTA_MAX:
            raise InvalidLimit(text, f"one second stores more than {QUOTA_MAX} permits; give a burst up to {QUOTA_MAX}")
        check_soft(text, self.soft, nominal=self.nominal, most=QUOTA_MAX)
        check_max_debt(text, self.max_debt, most=QUOTA_MAX)
        if self.smooth and (self.soft or self.max_debt is not None):
            raise InvalidLimit(
                text, f"soft and max_debt do not go with {self.algorithm}, which admits on credit; leave them out"
            )
        self._check_log(text)
        if self.costs is not None:
            most = QUOTA_MAX if self.refuses_all else self.cost_max
            object.__setattr__(self, "costs", checked_costs(text, self.costs, capacity=most))

    def _check_slots(self) -> None:
        """Checks a limit on work in progress, and sets its `window` to its lease.

        Raises InvalidLimit if the limit has a setting that only rates have.
        """
        text = f"{shown(self.quota)} in flight"
        lease = SLOT_LEASE_S if self.lease is None else self.lease
        if isinstance(lease, bool) or not isinstance(lease, int | float):
            raise InvalidLimit(text, f"the lease {shown(lease)} is not a number of seconds")
        if not WINDOW_MIN_NS <= lease * SECOND_NS <= SLOT_LEASE_MAX_NS:
            raise InvalidLimit(text, f"the lease of {shown(lease)} s is not between 1 ms and ten minutes")
        if self.window not in (None, lease):
            raise InvalidLimit(
                text, f"a limit on work in progress has no window; leave out window={shown(self.window)}"
            )
        for name, value in (("soft", self.soft), ("max_debt", self.max_debt)):
            if value:
                raise InvalidLimit(text, f"{name} does not go with {CONCURRENCY}; leave it out")
        object.__setattr__(self, "lease", float(lease))
        object.__setattr__(self, "window", float(lease))

    def _check_slices(self, text: str) -> None:
        if self.algorithm != SLIDING_SLICES:
            if self.slices is not None:
                raise InvalidLimit(text, f"slices go with {SLIDING_SLICES}, not with {self.algorithm}; leave them out")
        elif self.slices is None:
            object.__setattr__(self, "slices", SLICES)  # makes Limit(slices=10) equal to a limit without slices
        elif isinstance(self.slices, bool) or not isinstance(self.slices, int):
            raise InvalidLimit(text, f"the number of slices {shown(self.slices)} is not a whole number")
        elif not 1 <= self.slices <= SLICES_MAX:
            raise InvalidLimit(text, f"{shown(self.slices)} slices are not between 1 and {SLICES_MAX}")

    def _check_log(self, text: str) -> None:
        if not isinstance(self.count_refused, bool):
            raise InvalidLimit(text, f"count_refused {shown(self.count_refused)} is neither True nor False")
        if self.algorithm == SLIDING_LOG and self.capacity > LOG_QUOTA_MAX:
            raise InvalidLimit(
                text,
                f"a {SLIDING_LOG} remembers each charge, so it admits at most {LOG_QUOTA_MAX}, not {self.capacity}; "
                f"use {SLIDING_SLICES} for more",
            )
        if self.count_refused and self.algorithm != SLIDING_LOG:
            raise InvalidLimit(text, f"count_refused goes with {SLIDING_LOG}, not with {self.algorithm}; leave it out")

    def _check_alignment(self, text: str) -> None:
        if self.align not in ALIGNMENTS:
            raise InvalidLimit(text, f"unknown alignment {shown(self.align)}; known: {', '.join(ALIGNMENTS)}")
        if self.align != CLOCK and self.algorithm != FIXED_WINDOW:
            raise InvalidLimit(
                text, f"align={self.align!r} goes with {FIXED_WINDOW} alone, not with {self.algorithm}; leave it out"
            )
        if self.align == CALENDAR and unit_of(self.window_ns) is None:
            known = ", ".join(f"{unit.window_s // 86_400} ({unit.name})" for unit in UNITS)
            raise InvalidLimit(
                text, f"align='calendar' goes only with windows of these days: {known}; not with {self.window:g} s"
            )
        if not isinstance(self.timezone, str) or not 1 <= len(self.timezone) <= NAME_LENGTH_MAX:
            raise InvalidLimit(text, f"the timezone {shown(self.timezone)} is not a name like 'Europe/Berlin'")
        if self.align != CALENDAR and self.timezone != UTC:
            raise InvalidLimit(text, f"the timezone {self.timezone!r} goes with align='calendar' alone; leave it out")
        if self.align == CALENDAR and not is_zone(self.timezone):
            raise InvalidLimit(
                text,
                f"unknown timezone {self.timezone!r}; use an IANA name like 'Europe/Berlin', "
                "and install the package tzdata if this machine has no table of zones",
            )

    def _check_refill(self, text: str) -> None:
        if self.refill not in REFILLS:
            raise InvalidLimit(text, f"unknown refill {shown(self.refill)}; known: {', '.join(REFILLS)}")
        if self.refill != GREEDY and self.algorithm not in FILLED:
            raise InvalidLimit(
                text, f"refill={self.refill!r} goes with {' and '.join(FILLED)}, not {self.algorithm}; leave it out"
            )
        if self.initial is None:
            return
        if isinstance(self.initial, bool) or not isinstance(self.initial, int):
            raise InvalidLimit(text, f"initial={shown(self.initial)} is not a whole number")
        if self.algorithm not in FILLED:
            raise InvalidLimit(
                text,
                f"initial={shown(self.initial)} goes with {' and '.join(FILLED)}, not {self.algorithm}; leave it out",
            )
        if self.initial < 0 or (self.initial > self.nominal and not self.refuses_all):
            raise InvalidLimit(text, f"initial={shown(self.initial)} is not between 0 and {self.nominal}")

    @property
    def window_ns(self) -> int:
        """Returns the length of the window in nanoseconds; a whole number of microseconds, the unit of the hub."""
        return round(self.window * SECOND_NS / MICROSECOND_NS) * MICROSECOND_NS

    @property
    def capacity(self) -> int:
        """Returns the most cost that can be admitted at once, including what `soft` adds to `nominal`."""
        soft = floor(self.nominal * Fraction(str(self.soft))) if self.soft else 0  # 0.1 is a tenth, as it is written
        return self.nominal + soft

    @property
    def nominal(self) -> int:
        """Returns the most cost admitted at once, without `soft`: the quota, the burst, or all stored permits."""
        if self.refuses_all:
            return 0
        if self.burst is not None:
            return self.burst
        if self.algorithm == SMOOTH_BURSTY:
            return max(1, self.quota * SECOND_NS // self.window_ns)
        if self.algorithm == SMOOTH_WARMING_UP:
            return max(1, -(-self.quota * self.warmup_ns // self.window_ns))
        return self.quota

    @property
    def cost_max(self) -> int:
        """Returns the largest cost that can ever be admitted: the capacity, plus the most credit of smooth limits.

        For smooth limits it is at most `QUOTA_MAX // unit`.
        """
        if not self.smooth:
            return self.capacity
        return min(self.capacity + CREDIT_WINDOWS_MAX * self.quota, QUOTA_MAX // self.unit)

    @property
    def refuses_all(self) -> bool:
        """Returns whether the quota is 0, so that every request is refused, for example of a closed account."""
        return self.quota == 0

    @property
    def counted(self) -> Limit:
        """Returns the limit by which to count: this limit; if its quota is 0, a copy with a small quota above 0.

        Nodes and the hub divide by the quota, so they count the keys of a limit with quota 0 by the copy.
        """
        if not self.refuses_all:
            return self
        return replace(self, quota=max(1, self.initial or 0, *(self.costs or {}).values()), burst=None)

    @property
    def warmup_ns(self) -> int:
        """Returns the nanoseconds that a warm-up takes from cold to the full rate; 0 if the algorithm has none."""
        return 0 if self.warmup is None else round(self.warmup * SECOND_NS / MICROSECOND_NS) * MICROSECOND_NS

    @property
    def bucket(self) -> bool:
        """Returns whether use under this limit drains steadily, as in a bucket, and does not count in windows."""
        return self.algorithm in DRAINED

    @property
    def slots(self) -> bool:
        """Returns whether this is a limit on work in progress, whose charges are given back when the work ends."""
        return self.algorithm == CONCURRENCY

    @property
    def smooth(self) -> bool:
        """Returns whether a request is admitted on credit, so that the next one waits until the credit is paid back."""
        return self.algorithm in SMOOTH

    @property
    def unit(self) -> int:
        """Returns into how many parts, a power of ten, this limit divides a request to count allowances."""
        unit = UNIT if self.algorithm in PACED else 1
        while unit > 1 and unit * max(self.quota, self.capacity) > QUOTA_MAX:
            unit //= 10
        return unit

    def over(self, window: float) -> Limit:
        """Returns a copy of this limit with a window of `window` seconds.

        The warm-up changes in proportion to the window; the capacity stays the same.
        """
        if self.slots:
            return replace(self, window=window, lease=window)
        burst = self.capacity if self.algorithm == SMOOTH_BURSTY else self.burst
        warmup = None if self.warmup is None else self.warmup * window / self.window
        return replace(self, window=window, burst=burst, warmup=warmup)

    @property
    def dated(self) -> bool:
        """Returns whether every charge under this limit has a date, until which it counts in full; see DATED."""
        return self.counts_as in DATED

    @property
    def counts_as(self) -> str:
        """Returns the algorithm by which this limit counts: its own, but `fixed-window` for a window of one slice."""
        return FIXED_WINDOW if self.slices == 1 else self.algorithm

    @property
    def withheld(self) -> int:
        """Returns the part of the capacity that a new key cannot use at once, because `initial` is smaller."""
        return 0 if self.initial is None else self.capacity - self.initial

    @property
    def calendar(self) -> CalendarWindows | None:
        """Returns the windows of a limit that follows a calendar; None for any other limit."""
        unit = unit_of(self.window_ns) if self.align == CALENDAR else None
        return None if unit is None else CalendarWindows(unit, self.timezone)

    @property
    def variant(self) -> str:
        """Returns a word for when windows begin and how a bucket refills, such as `calendar@UTC`; "" by default.

        The hub counts a key separately under limits with different variants.
        """
        if self.align == CALENDAR:
            return f"{CALENDAR}@{self.timezone}"
        return FIRST_HIT if self.align == FIRST_HIT else INTERVAL if self.refill == INTERVAL else ""

    @classmethod
    def parse(cls, text: str, *, algorithm: str | None = None, **fields: Any) -> Limit:
        """Reads a limit string such as `100/minute`, `5 per 10 seconds`, `10/s burst 20 as api` or `20 in flight`.

        Without an algorithm a burst means `token-bucket`, slices `sliding-slices`, and a warmup (`10/s warmup 5s`)
        `smooth-warming-up`; otherwise the default is `sliding-window`. `fields` are settings that a limit string cannot
        express, such as `slices` or `align`.

        Raises:
            InvalidLimit: the text cannot be read (the message names the place), or it contains several quotas.
        """
        quota, *others = parse_quotas(text)
        if others:
            raise InvalidLimit(
                text,
                "several quotas, where one is expected; pass one, or use Limit.parse_all or agent.limit",
                others[0].position,
            )
        return cls._of(quota, algorithm, fields)

    @classmethod
    def parse_all(cls, text: str, *, algorithm: str | None = None, **fields: Any) -> tuple[Limit, ...]:
        """Returns one `Limit` for each quota of a limit string such as `10/second; 1000/hour as hourly`.

        `algorithm` and `fields` apply to each quota, as in `parse`. Raises InvalidLimit, whose message names the place.
        """
        return tuple(cls._of(quota, algorithm, fields) for quota in parse_quotas(text))

    @classmethod
    def _of(cls, quota: Quota, algorithm: str | None, fields: dict[str, Any]) -> Limit:
        if quota.slots:
            return cls._of_slots(quota, algorithm, fields)
        if algorithm is None and quota.warmup_s is not None:
            algorithm = SMOOTH_WARMING_UP
        elif algorithm is None and quota.burst is not None:
            algorithm = TOKEN_BUCKET
        elif algorithm is None:
            algorithm = SLIDING_WINDOW if fields.get("slices") is None else SLIDING_SLICES
        if quota.warmup_s is not None:
            fields = {**fields, "warmup": quota.warmup_s}
        return cls(quota.amount, quota.window_s, algorithm=algorithm, burst=quota.burst, name=quota.name, **fields)

    @classmethod
    def _of_slots(cls, quota: Quota, algorithm: str | None, fields: dict[str, Any]) -> Limit:
        if algorithm not in (None, CONCURRENCY):
            problem = f"the algorithm {algorithm!r} counts a rate, but this limits work in progress; leave it out"
            raise InvalidLimit(f"{quota.amount} in flight", problem, quota.position)
        if quota.lease_s is not None:
            fields = {**fields, "lease": quota.lease_s}
        return cls(quota.amount, algorithm=CONCURRENCY, name=quota.name, **fields)

    def __str__(self) -> str:
        if self.slots:
            return f"{self.quota} in flight lease {_written(self.window_ns)} ({', '.join(self._said())})"
        burst = "" if self.burst is None else f" burst {self.burst}"
        warmup = "" if self.warmup is None else f" warmup {_written(self.warmup_ns)}"
        return f"{self.quota}/{_written(self.window_ns)}{burst}{warmup} ({', '.join(self._said())})"

    def _said(self) -> list[str]:
        said = [self.algorithm]
        if self.refuses_all:
            said.append("refuses everything")
        if self.slices is not None:
            said.append(f"{self.slices} slices")
        if self.count_refused:
            said.append("refused ones counted")
        if self.align != CLOCK:
            said.append(f"calendar of {self.timezone}" if self.align == CALENDAR else self.align)
        if self.initial is not None:
            said.append(f"initial {self.initial}")
        if self.refill != GREEDY:
            said.append(f"refill {self.refill}")
        if self.soft:
            said.append(f"soft {100 * self.soft:g}%")
        if self.max_debt is not None:
            said.append(f"max_debt {self.max_debt}")
        if self.costs is not None:
            said.append(f"costs {', '.join(f'{kind} {cost}' for kind, cost in self.costs.items())}")
        return said


def _written(window_ns: int) -> str:
    """Returns the length of a window as text, in whole seconds or milliseconds if possible.

    Examples are `60s`, `250ms` and `0.0005s`.
    """
    if window_ns % SECOND_NS == 0:
        return f"{window_ns // SECOND_NS}s"
    milliseconds, rest_ns = divmod(window_ns, MILLISECOND_NS)
    return f"{milliseconds}ms" if rest_ns == 0 else f"{window_ns / SECOND_NS}s"


def _check_numbers(quota: object, window: object, algorithm: str) -> None:
    """Raises InvalidLimit if `quota` is a limit string, or if `window` is None and the algorithm needs one."""
    if window is None and isinstance(quota, str):
        raise InvalidLimit(quota, f"Limit takes numbers, as in Limit(5, 60); write Limit.parse({quota!r})")
    if window is None and algorithm != CONCURRENCY:
        raise InvalidLimit(shown(quota), f"a limit by {algorithm} needs a window, as in Limit(5, 60)")


def _check_quota(text: str, field: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidLimit(text, f"the {field} {shown(value)} is not a whole number; write one, such as 100")
    least = 0 if field == "quota" else 1
    if not least <= value <= QUOTA_MAX:
        raise InvalidLimit(text, f"the {field} {shown(value)} is not between {least} and {QUOTA_MAX}")


def _check_warmup(text: str, limit: Limit) -> None:
    """Raises InvalidLimit if the limit has a warm-up that its algorithm does not use, or lacks one that it needs."""
    warmup = limit.warmup
    if limit.algorithm != SMOOTH_WARMING_UP:
        if warmup is not None:
            raise InvalidLimit(text, f"a warmup needs {SMOOTH_WARMING_UP}, not {limit.algorithm}; leave it out")
        return
    if warmup is None:
        raise InvalidLimit(text, f"{SMOOTH_WARMING_UP} needs a warmup, in seconds: Limit(..., warmup=10)")
    if isinstance(warmup, bool) or not isinstance(warmup, int | float):
        raise InvalidLimit(text, f"the warmup {shown(warmup)} is not a number of seconds")
    if not WINDOW_MIN_NS <= warmup * SECOND_NS <= WINDOW_MAX_NS:
        raise InvalidLimit(text, f"the warmup of {shown(warmup)} s is not between 1 ms and ten years")
    if not limit.nominal <= QUOTA_MAX:
        raise InvalidLimit(
            text, f"the warmup of {shown(warmup)} s stores more than {QUOTA_MAX} permits; give a shorter one"
        )
