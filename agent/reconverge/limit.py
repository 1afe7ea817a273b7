"""What may be admitted: a quota of cost per window, for each key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from reconverge.clock import MICROSECOND_NS, MILLISECOND_NS, SECOND_NS
from reconverge.errors import InvalidLimit, shown
from reconverge.grammar import Quota, parse_quotas

FIXED_WINDOW: Final = "fixed-window"
SLIDING_WINDOW: Final = "sliding-window"
TOKEN_BUCKET: Final = "token-bucket"  # noqa: S105  # no password
GCRA: Final = "gcra"

ALGORITHMS: Final = (FIXED_WINDOW, SLIDING_WINDOW, TOKEN_BUCKET, GCRA)
BUCKETS: Final = (TOKEN_BUCKET, GCRA)
ANNOUNCED: Final = ("sliding-slices", "sliding-log", "leaky-bucket")
"""Names that the public API has reserved, and that this version does not carry out yet."""

QUOTA_MAX: Final = 10**12
"""Thousandths of a cost travel as exact integers, also through Lua's doubles, which end at 2**53."""
WINDOW_MIN_NS: Final = MILLISECOND_NS
"""Shorter windows than the clock error between two machines would limit nothing."""
WINDOW_MAX_NS: Final = 3660 * 86_400 * SECOND_NS
"""Ten years."""
NAME_LENGTH_MAX: Final = 64
NAME_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./")


@dataclass(frozen=True, slots=True)
class Limit:
    """A quota of cost per window, counted by one algorithm, for each key on its own.

    `quota` is a whole number of cost; `window` is in seconds. `burst` is the capacity of a bucket, by default the
    quota; only `token-bucket` and `gcra` have one. `name` is what "as NAME" said in a limit string, if anything.

    Raises:
        InvalidLimit: a value is of the wrong type or out of range, or the algorithm does not exist.
    """

    quota: int
    window: float
    algorithm: str = SLIDING_WINDOW
    burst: int | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        text = f"{shown(self.quota)}/{shown(self.window)}s"
        if self.algorithm in ANNOUNCED:
            raise InvalidLimit(
                text, f"the algorithm {self.algorithm!r} is not available yet; use {', '.join(ALGORITHMS)}"
            )
        if self.algorithm not in ALGORITHMS:
            raise InvalidLimit(text, f"unknown algorithm {self.algorithm!r}; known: {', '.join(ALGORITHMS)}")
        _check_quota(text, "quota", self.quota)
        if isinstance(self.window, bool) or not isinstance(self.window, int | float):
            raise InvalidLimit(text, f"the window {shown(self.window)} is not a number of seconds")
        if not WINDOW_MIN_NS <= self.window * SECOND_NS <= WINDOW_MAX_NS:
            raise InvalidLimit(text, f"the window of {shown(self.window)} s is not between 1 ms and ten years")
        if self.burst is not None:
            _check_quota(text, "burst", self.burst)
            if self.algorithm not in BUCKETS:
                raise InvalidLimit(text, f"a burst needs a bucket ({', '.join(BUCKETS)}), not {self.algorithm}")

    @property
    def window_ns(self) -> int:
        """How long the quota lasts, in nanoseconds; a whole number of microseconds, as the hub counts those."""
        return round(self.window * SECOND_NS / MICROSECOND_NS) * MICROSECOND_NS

    @property
    def capacity(self) -> int:
        """The most that can be admitted at once: the quota, or the burst of a bucket."""
        return self.quota if self.burst is None else self.burst

    @property
    def bucket(self) -> bool:
        """Whether this limit drains steadily instead of counting in windows."""
        return self.algorithm in BUCKETS

    @classmethod
    def parse(cls, text: str, *, algorithm: str | None = None) -> Limit:
        """Read a limit string such as `100/minute`, `5 per 10 seconds`, `2000/10s` or `10/s burst 20 as api`.

        A burst without an algorithm means `token-bucket`; otherwise the default is `sliding-window`.

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
        return cls._of(quota, algorithm)

    @classmethod
    def _of(cls, quota: Quota, algorithm: str | None) -> Limit:
        if algorithm is None:
            algorithm = SLIDING_WINDOW if quota.burst is None else TOKEN_BUCKET
        return cls(quota.amount, quota.window_s, algorithm=algorithm, burst=quota.burst, name=quota.name)

    def __str__(self) -> str:
        burst = "" if self.burst is None else f" burst {self.burst}"
        return f"{self.quota}/{_written(self.window_ns)}{burst} ({self.algorithm})"


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
