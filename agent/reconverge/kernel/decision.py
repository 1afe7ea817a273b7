"""Decision, the answer to a request with its grounds; and Usage, the use of a key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer to one request: whether it is admitted, and the grounds. True as a boolean if admitted."""

    allowed: bool
    limit: int
    """The quota: cost that may be admitted per window (for a bucket: its capacity), without what `soft` adds."""
    remaining: int
    """Cost the whole fleet has left, as far as this node knows; below the cost asked for when refused."""
    retry_after: float
    """Seconds to wait before the same request may be admitted; 0.0 when it was allowed."""
    reset_after: float
    """Seconds until the limit is as good as new if nothing more is admitted."""
    staleness: float
    """Age in seconds of the merged total behind this answer; infinite when no answer has come yet."""
    binding: str = ""
    """The name of the quota that this decision is about. If there are several: of the quotas that refused, the one with
    the longest wait; if all admitted, the one with the least left."""
    over_quota: bool = False
    """Admitted above the quota, as the limit's `soft` allows."""
    borrowed: bool = False
    """Admitted beyond the limit's own share, out of what its parent has left for all."""
    certain: bool = True
    """Whether no answer of the hub would change the decision. It is certain if the request was admitted within the
    node's own part of the limit, or refused while by all nodes' reports nothing can be free. Otherwise the node was in
    doubt, as about a key that is new to it."""
    switch: ClassVar[str] = "on"
    """How the limit was switched: "on", "shadow" or "off"."""
    would_refuse: ClassVar[bool] = False
    """Admitted only because the limit is in shadow."""
    reentered: ClassVar[bool] = False
    """Refused only because the same thread was in the middle of a decision about the limit."""

    def __bool__(self) -> bool:
        return self.allowed


@dataclass(frozen=True, slots=True)
class Usage:
    """How much of a limit one key has used."""

    own: int
    """Cost charged by this node that still counts, rounded up; of a bucket that the hub keeps, at most so much."""
    total: int
    """Cost charged by all nodes that still counts, as last merged, with this node's own share up to now."""
    limit: int
    """The quota: cost that may be admitted per window (for a bucket: its capacity), without what `soft` adds."""
    allowance: int
    """How far this node may go by itself before it has to hear from the hub again."""
    staleness: float
    """Age in seconds of the merged total; infinite when no answer has come yet, 0.0 without a hub."""
