"""What a request of some kind costs: a table that goes with a limit."""

# `cost` and kind are multiplied: `allow(key, cost=3, kind="POST")` is three POSTs. So estimate and truth of a
# reservation count in one unit, such as tokens of a model that is ten times as dear, a refund needs no arithmetic, and
# a batch is a batch. A kind that is not in the table is an error unless the table has ANY_KIND: a misspelt kind must
# not be free, and not cheap either.

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from reconverge.errors import InvalidLimit, UnknownKind, shown

ANY_KIND: Final = "*"
"""Stands in a table of costs for every kind that is not named there."""
KINDS_MAX: Final = 1000
"""A table of costs is written by hand; a longer one is a mistake, such as keys in the place of kinds."""


def checked_costs(text: str, costs: object, *, capacity: int) -> dict[str, int]:
    """A copy of a table of costs that can be used. Raises InvalidLimit, which shows `text` as the limit."""
    if not isinstance(costs, Mapping):
        raise InvalidLimit(text, f"costs {shown(costs)} are no table; write them like {{'GET': 1, 'POST': 2}}")
    if not 1 <= len(costs) <= KINDS_MAX:
        raise InvalidLimit(text, f"a table of costs names 1 to {KINDS_MAX} kinds, not {len(costs)}")
    checked: dict[str, int] = {}
    for kind, cost in costs.items():
        if not isinstance(kind, str) or not kind:
            raise InvalidLimit(text, f"the kind {shown(kind)} is not a string of at least one character")
        if isinstance(cost, bool) or not isinstance(cost, int) or cost < 0:
            raise InvalidLimit(text, f"kind {kind!r} costs {shown(cost)}, which is not a whole number of zero or more")
        if cost > capacity:
            raise InvalidLimit(
                text, f"kind {kind!r} costs {shown(cost)}, which can never be admitted: at most {capacity} is at once"
            )
        checked[kind] = cost
    return checked


def cost_of(limit_name: str, costs: Mapping[str, int] | None, kind: object) -> int:
    """What one request of `kind` costs. Raises UnknownKind."""
    if costs is not None and isinstance(kind, str):
        cost = costs.get(kind)
        if cost is None:
            cost = costs.get(ANY_KIND)
        if cost is not None:
            return cost
    raise UnknownKind(limit_name, kind, costs or ())
