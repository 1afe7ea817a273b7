"""What may be admitted: a quota of cost per window, for each key."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from reconverge.clock import MICROSECOND_NS, MILLISECOND_NS, SECOND_NS
from reconverge.errors import InvalidLimit, shown
from reconverge.grammar import Quota, parse_quotas

FIXED_WINDOW: Final = "fixed-window"
SLIDING_WINDOW: Final = "sliding-window"
SLIDING_SLICES: Final = "sliding-slices"
SLIDING_LOG: Final = "sliding-log"
TOKEN_BUCKET: Final = "token-bucket"  # noqa: S105  # no password
GCRA: Final = "gcra"
LEAKY_BUCKET: Final = "leaky-bucket"
SMOOTH_BURSTY: Final = "smooth-bursty"
SMOOTH_WARMING_UP: Final = "smooth-warming-up"

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
BUCKETS: Final = (TOKEN_BUCKET, GCRA, LEAKY_BUCKET)
"""Three names for one arithmetic: tokens, theoretical arrival times, and the bucket that they are the other side of."""
DATED: Final = (SLIDING_SLICES, SLIDING_LOG)
"""Every charge has a date, and expires as a whole."""
SMOOTH: Final = (SMOOTH_BURSTY, SMOOTH_WARMING_UP)
"""What admits one request on credit, and the next when that has been paid for."""
PACED: Final = (LEAKY_BUCKET, *SMOOTH)
"""Whose lines are parts of a rate, and so have to be finer than whole requests."""
METERED: Final = tuple(name for name in ALGORITHMS if name not in SMOOTH)
"""What admits as much at once as fits."""

QUOTA_MAX: Final = 10**12
"""Thousandths of a cost travel as exact integers, also through Lua's doubles, which end at 2**53."""
UNIT: Final = 1000
"""Lines of paced limits are counted in so many parts of a request, unless the quota is large without that."""
WINDOW_MIN_NS: Final = MILLISECOND_NS
"""Shorter windows than the clock error between two machines would limit nothing."""
WINDOW_MAX_NS: Final = 3660 * 86_400 * SECOND_NS
"""Ten years."""
SLICES: Final = 10
SLICES_MAX: Final = 1000
"""A key remembers up to so many counts."""
LOG_QUOTA_MAX: Final = 100_000
"""A key remembers up to so many charges, at about fifty bytes each on every node."""
NAME_LENGTH_MAX: Final = 64
NAME_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./")


@dataclass(frozen=True, slots=True)
class Limit:
    """A quota of cost per window, counted by one algorithm, for each key on its own.

    `quota` is a whole number of cost; `window` is in seconds. `burst` is the capacity of a bucket, by default the
    quota, and only buckets (`token-bucket`, `gcra`, `leaky-bucket`) have one; for `smooth-bursty` the most permits that
    are stored while nobody asks, by default one second's worth. `name` is what "as NAME" said in a limit string, if
    anything. `slices` is into how many parts `sliding-slices` divides the window, by default 10. `count_refused` has
    `sliding-log` count requests that were refused as well, so that who goes on asking stays out. `warmup` is how many
    seconds `smooth-warming-up` takes from cold to the full rate.

    Raises:
        InvalidLimit: a value is of the wrong type or out of range, or the algorithm does not exist.
    """

    quota: int
    window: float
    algorithm: str = SLIDING_WINDOW
    burst: int | None = None
    name: str | None = None
    slices: int | None = None
    count_refused: bool = False
    warmup: float | None = None

    def __post_init__(self) -> None:
        text = f"{shown(self.quota)}/{shown(self.window)}s"
        if self.algorithm not in ALGORITHMS:
            raise InvalidLimit(text, f"unknown algorithm {self.algorithm!r}; known: {', '.join(ALGORITHMS)}")
        _check_quota(text, "quota", self.quota)
        if isinstance(self.window, bool) or not isinstance(self.window, int | float):
            raise InvalidLimit(text, f"the window {shown(self.window)} is not a number of seconds")
        if not WINDOW_MIN_NS <= self.window * SECOND_NS <= WINDOW_MAX_NS:
            raise InvalidLimit(text, f"the window of {shown(self.window)} s is not between 1 ms and ten years")
        if self.burst is not None:
            _check_quota(text, "burst", self.burst)
            if self.algorithm not in (*BUCKETS, SMOOTH_BURSTY):
                raise InvalidLimit(
                    text, f"a burst needs a bucket ({', '.join(BUCKETS)}) or {SMOOTH_BURSTY}, not {self.algorithm}"
                )
        _check_warmup(text, self)
        self._check_slices(text)
        self._check_log(text)

    def _check_slices(self, text: str) -> None:
        if self.algorithm != SLIDING_SLICES:
            if self.slices is not None:
                raise InvalidLimit(text, f"slices go with {SLIDING_SLICES}, not with {self.algorithm}")
        elif self.slices is None:
            object.__setattr__(self, "slices", SLICES)  # so that saying the default and leaving it out are the same
        elif isinstance(self.slices, bool) or not isinstance(self.slices, int):
            raise InvalidLimit(text, f"the number of slices {shown(self.slices)} is not a whole number")
        elif not 1 <= self.slices <= SLICES_MAX:
            raise InvalidLimit(text, f"{shown(self.slices)} slices are not between 1 and {SLICES_MAX}")

    def _check_log(self, text: str) -> None:
        if not isinstance(self.count_refused, bool):
            raise InvalidLimit(text, f"count_refused {shown(self.count_refused)} is neither True nor False")
        if self.algorithm == SLIDING_LOG and self.quota > LOG_QUOTA_MAX:
            raise InvalidLimit(
                text,
                f"a {SLIDING_LOG} of {self.quota} would remember as many charges of each key; "
                f"up to {LOG_QUOTA_MAX} it does, and beyond that {SLIDING_SLICES} is what comes closest",
            )
        if self.count_refused and self.algorithm != SLIDING_LOG:
            raise InvalidLimit(text, f"count_refused goes with {SLIDING_LOG}, not with {self.algorithm}")

    @property
    def window_ns(self) -> int:
        """How long the quota lasts, in nanoseconds; a whole number of microseconds, as the hub counts those."""
        return round(self.window * SECOND_NS / MICROSECOND_NS) * MICROSECOND_NS

    @property
    def capacity(self) -> int:
        """The most that can be admitted at once: the quota, or the burst of a bucket; all that is stored if smooth."""
        if self.burst is not None:
            return self.burst
        if self.algorithm == SMOOTH_BURSTY:
            return max(1, self.quota * SECOND_NS // self.window_ns)
        if self.algorithm == SMOOTH_WARMING_UP:
            return max(1, -(-self.quota * self.warmup_ns // self.window_ns))
        return self.quota

    @property
    def warmup_ns(self) -> int:
        """How long it takes from cold to the full rate; zero where nothing warms up."""
        return 0 if self.warmup is None else round(self.warmup * SECOND_NS / MICROSECOND_NS) * MICROSECOND_NS

    @property
    def bucket(self) -> bool:
        """Whether this limit drains steadily instead of counting in windows."""
        return self.algorithm in BUCKETS or self.algorithm in SMOOTH

    @property
    def smooth(self) -> bool:
        """Whether a request goes on credit, and the next one waits until that is paid for."""
        return self.algorithm in SMOOTH

    @property
    def unit(self) -> int:
        """How many parts of a request the lines and counts of this limit are kept in: a power of ten."""
        unit = UNIT if self.algorithm in PACED else 1
        while unit > 1 and unit * max(self.quota, self.capacity) > QUOTA_MAX:
            unit //= 10
        return unit

    def over(self, window: float) -> Limit:
        """The same limit where everything takes longer or shorter, as the window does; what fits at once stays."""
        burst = self.capacity if self.algorithm == SMOOTH_BURSTY else self.burst
        warmup = None if self.warmup is None else self.warmup * window / self.window
        return replace(self, window=window, burst=burst, warmup=warmup)

    @property
    def dated(self) -> bool:
        """Whether every charge has a date of its own, and expires as a whole."""
        return self.counts_as in DATED

    @property
    def counts_as(self) -> str:
        """The algorithm whose arithmetic applies: a window of a single slice is a fixed window."""
        return FIXED_WINDOW if self.slices == 1 else self.algorithm

    @classmethod
    def parse(cls, text: str, *, algorithm: str | None = None, slices: int | None = None) -> Limit:
        """Read a limit string such as `100/minute`, `5 per 10 seconds`, `2000/10s` or `10/s burst 20 as api`.

        Without an algorithm a burst means `token-bucket`, slices `sliding-slices`, and a warmup (`10/s warmup 5s`)
        `smooth-warming-up`; otherwise the default is `sliding-window`.

        Raises:
            InvalidLimit: the text cannot be read (it says where), or it joins several quotas.
        """
        quota, *others = parse_quotas(text)
        if others:
            raise InvalidLimit(
                text,
                "several quotas on one limit are not available yet; declare one limit for each",
                others[0].position,
            )
        return cls._of(quota, algorithm, slices)

    @classmethod
    def _of(cls, quota: Quota, algorithm: str | None, slices: int | None) -> Limit:
        if algorithm is None and quota.warmup_s is not None:
            algorithm = SMOOTH_WARMING_UP
        elif algorithm is None and quota.burst is not None:
            algorithm = TOKEN_BUCKET
        elif algorithm is None:
            algorithm = SLIDING_WINDOW if slices is None else SLIDING_SLICES
        return cls(
            quota.amount,
            quota.window_s,
            algorithm,
            burst=quota.burst,
            name=quota.name,
            slices=slices,
            warmup=quota.warmup_s,
        )

    def __str__(self) -> str:
        burst = "" if self.burst is None else f" burst {self.burst}"
        warmup = "" if self.warmup is None else f" warmup {_written(self.warmup_ns)}"
        slices = "" if self.slices is None else f", {self.slices} slices"
        refused = ", refused ones counted" if self.count_refused else ""
        return f"{self.quota}/{_written(self.window_ns)}{burst}{warmup} ({self.algorithm}{slices}{refused})"


def check_name(name: object) -> str:
    """Return `name` if it can name a limit; it becomes part of the hub's keys and of metric labels.

    Raises:
        InvalidLimit: it is not a string of 1 to 64 letters, digits, or `_-./`.
    """
    if not isinstance(name, str):
        raise InvalidLimit(shown(name), f"a limit's name is a string, not {type(name).__name__}")
    if not 1 <= len(name) <= NAME_LENGTH_MAX:
        raise InvalidLimit(name, f"a limit's name has 1 to {NAME_LENGTH_MAX} characters, not {len(name)}")
    for position, character in enumerate(name):
        if character not in NAME_CHARACTERS:
            raise InvalidLimit(name, f"a limit's name has no {character!r}; use letters, digits and _-./", position)
    return name


def _written(window_ns: int) -> str:
    """A window as a limit string says it; no limit string can say parts of a millisecond."""
    if window_ns % SECOND_NS == 0:
        return f"{window_ns // SECOND_NS}s"
    milliseconds, rest_ns = divmod(window_ns, MILLISECOND_NS)
    return f"{milliseconds}ms" if rest_ns == 0 else f"{window_ns / SECOND_NS}s"


def _check_quota(text: str, field: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidLimit(text, f"the {field} {shown(value)} is not a whole number")
    if not 1 <= value <= QUOTA_MAX:
        raise InvalidLimit(text, f"the {field} {shown(value)} is not between 1 and {QUOTA_MAX}")


def _check_warmup(text: str, limit: Limit) -> None:
    """Raise InvalidLimit unless a warm-up is there exactly where something warms up."""
    warmup = limit.warmup
    if limit.algorithm != SMOOTH_WARMING_UP:
        if warmup is not None:
            raise InvalidLimit(text, f"a warmup needs {SMOOTH_WARMING_UP}, not {limit.algorithm}")
        return
    if warmup is None:
        raise InvalidLimit(text, f"{SMOOTH_WARMING_UP} needs a warmup, in seconds: Limit(..., warmup=10)")
    if isinstance(warmup, bool) or not isinstance(warmup, int | float):
        raise InvalidLimit(text, f"the warmup {shown(warmup)} is not a number of seconds")
    if not WINDOW_MIN_NS <= warmup * SECOND_NS <= WINDOW_MAX_NS:
        raise InvalidLimit(text, f"the warmup of {shown(warmup)} s is not between 1 ms and ten years")
    if not limit.capacity <= QUOTA_MAX:
        raise InvalidLimit(text, f"the warmup of {shown(warmup)} s stores more than {QUOTA_MAX} permits")
