"""Defines `Decision`, the answer to a request with its grounds, and `Usage`, the use of a key."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, ClassVar, NoReturn

from reconverge.runtime.truth import no_number

_NO_SEQUENCE = "a decision is one object; read its attributes, as in decision.allowed, decision.retry_after"
_NO_BLOCK = "a decision has no block; write: if decision, or a block with limiter.reserve(key, cost)"


@no_number("a decision", "write: if decision, if not decision, or use .allowed")
@dataclass(frozen=True, slots=True)
class Decision:
    """The answer to one request: whether it is admitted, and why.

    As a boolean, it is True if the request was admitted. These mistakes raise TypeError: to compare it with True or
    False, which would never be equal, to order it beside a number, to iterate over it, and to use it in a `with` block.
    """

    allowed: bool
    limit: int
    """The quota: cost that may be admitted per window (for a bucket: its capacity), without what `soft` adds."""
    remaining: int
    """The cost that all nodes together may still charge, as far as this node knows. If the request was refused, it is
    less than the request's cost."""
    retry_after: float
    """Seconds to wait before the same request may be admitted; 0.0 if it was admitted."""
    reset_after: float
    """Seconds until no charge to the key counts any more, if nothing further is admitted."""
    staleness: float
    """Age in seconds of the hub's total by which the node decided; infinite before the hub's first answer."""
    binding: str = ""
    """The name of the quota that this decision is about. If the limit has several: of the quotas that refused, the one
    with the longest wait; if all admitted, the one with the least left."""
    over_quota: bool = False
    """Whether the request was admitted above the quota, as the limit's `soft` allows."""
    borrowed: bool = False
    """Whether the request was admitted beyond the limit's own share, from the pool that all shares of a parent use."""
    certain: bool = True
    """Whether no answer of the hub would change the decision: because the request was admitted within the node's own
    part of the limit, or refused because the reports of all nodes leave nothing free. Otherwise the node was in doubt,
    for example about a key that is new to it."""
    switch: ClassVar[str] = "on"
    """The switch of the limit at the decision: "on", "shadow" or "off"."""
    would_refuse: ClassVar[bool] = False
    """Whether the request was admitted only because the limit is in shadow."""
    reentered: ClassVar[bool] = False
    """Whether the request was refused only because its thread was in the middle of a decision about the same limit."""

    def __bool__(self) -> bool:
        return self.allowed

    if not TYPE_CHECKING:  # a type checker finds these mistakes only if it does not know the methods

        def __iter__(self) -> NoReturn:
            raise TypeError(_NO_SEQUENCE)

        def __enter__(self) -> NoReturn:
            raise TypeError(_NO_BLOCK)

        def __exit__(self, *_error: object) -> NoReturn:
            raise TypeError(_NO_BLOCK)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Decision) or other.__class__ is not self.__class__:
            return NotImplemented
        return astuple(self) == astuple(other)

    def __hash__(self) -> int:
        return hash(astuple(self))


@no_number("a usage", "compare one of its numbers, as in usage.total > 90")
@dataclass(frozen=True, slots=True)
class Usage:
    """How much of a limit one key has used, as far as this node knows."""

    own: int
    """Cost charged by this node that still counts, rounded up. If the hub keeps the free part of a bucket, this node's
    charges to it count as draining at the full rate."""
    total: int
    """Cost charged by all nodes that still counts: by this node up to now, by the others as of the hub's answer."""
    limit: int
    """The quota: cost that may be admitted per window (for a bucket: its capacity), without what `soft` adds."""
    allowance: int
    """The most cost that this node may have charged by itself, until the hub grants it more."""
    staleness: float
    """Age in seconds of the hub's last answer; infinite before the first answer, 0.0 without a hub."""
