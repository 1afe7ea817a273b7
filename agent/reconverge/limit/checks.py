"""Checks the parts of a limit other than its quota: its name, its costs by kind of request, `soft` and `max_debt`."""

# Theory of operation.
#
# Costs. A request's `cost` is multiplied by the cost of its kind: `allow(key, cost=3, kind="POST")` is three POSTs. So
# the estimate of a reservation and its true cost are in the same unit, such as tokens of a model that is ten times as
# expensive; a refund needs no arithmetic; and a batch of three costs as much as three requests. A kind that is not in
# the table (a dict) is an error unless the table has ANY_KIND: a misspelt kind must be neither free nor cheap.
#
# Soft quotas. A soft quota is a larger capacity, and nothing else: merge rule, allowances, policies and bounds use only
# capacities, so every promise holds with quota * (1 + soft) in the place of the quota. Only decisions and responses
# show the quota itself.
#
# Debt. A settlement charges the true cost, even if it does not fit. One estimate that was wrong by a factor of a
# hundred would shut the key of a bucket out for a hundred windows; `max_debt` bounds that. The debt is measured by the
# use of the whole fleet, as far as it is known: by its own use alone, a node with a small allowance would drop charges
# that fit into the quota. N nodes that settle within one exchange may go N times as deep.

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from reconverge.errors import InvalidLimit, UnknownKind, shown

NAME_LENGTH_MAX: Final = 64
NAME_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./")


def check_name(name: object) -> str:
    """Returns `name` if it can name a limit; the name becomes part of the hub's keys and of metric labels.

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


ANY_KIND: Final = "*"
"""The key in a limit's `costs` whose cost holds for all kinds of request that are not named there."""
KINDS_MAX: Final = 1000
"""The most kinds in a limit's `costs`. More are a mistake, such as costs by user instead of by kind of request."""


def checked_costs(text: str, costs: object, *, capacity: int) -> dict[str, int]:
    """Returns a checked copy of `costs`, a dict from kind of request to cost.

    `capacity` is the largest cost allowed. Raises InvalidLimit, whose message shows `text` as the limit.
    """
    if not isinstance(costs, Mapping):
        raise InvalidLimit(text, f"costs {shown(costs)} are not a dict; write them like {{'GET': 1, 'POST': 2}}")
    if not 1 <= len(costs) <= KINDS_MAX:
        raise InvalidLimit(text, f"costs must name 1 to {KINDS_MAX} kinds of request, not {len(costs)}")
    checked: dict[str, int] = {}
    for kind, cost in costs.items():
        if not isinstance(kind, str) or not kind:
            raise InvalidLimit(text, f"the kind {shown(kind)} is not a string of at least one character")
        if isinstance(cost, bool) or not isinstance(cost, int) or cost < 0:
            raise InvalidLimit(text, f"kind {kind!r} costs {shown(cost)}, which is not a whole number of zero or more")
        if cost > capacity:
            raise InvalidLimit(
                text,
                f"kind {kind!r} costs {shown(cost)}, which can never be admitted: {capacity} is the most at once",
            )
        checked[kind] = cost
    if not any(checked.values()):
        raise InvalidLimit(text, "all kinds cost 0, so nothing would be limited; give a kind a cost of at least 1")
    return checked


def cost_of(limit_name: str, costs: Mapping[str, int] | None, kind: object) -> int:
    """Returns the cost of one request of `kind`.

    Raises UnknownKind if `costs` names neither `kind` nor ANY_KIND.
    """
    if costs is not None and isinstance(kind, str):
        cost = costs.get(kind)
        if cost is None:
            cost = costs.get(ANY_KIND)
        if cost is not None:
            return cost
    raise UnknownKind(limit_name, kind, costs or ())


SOFT_MAX: Final = 1
"""The largest `soft`, the fraction by which requests may exceed the quota. A larger number is probably a percentage."""


def check_soft(text: str, soft: object, *, nominal: int, most: int) -> None:
    """Checks `soft`, a fraction from 0 to 1, of the limit string `text`. Raises InvalidLimit if it is not allowed.

    With `soft`, the capacity is `nominal * (1 + soft)`, and may be at most `most`.
    """
    if isinstance(soft, bool) or not isinstance(soft, int | float) or not 0 <= soft <= SOFT_MAX:
        problem = (
            f"soft {shown(soft)} is not a fraction from 0 to {SOFT_MAX}; 0.1, or '10%' for agent.limit, is 10 % more"
        )
        raise InvalidLimit(text, problem)
    if nominal * (1 + soft) > most:
        raise InvalidLimit(
            text,
            f"soft={shown(soft)} raises the largest cost admitted at once from {nominal} to more than {most}; "
            "lower soft, or the quota or burst",
        )


def check_max_debt(text: str, max_debt: object, *, most: int) -> None:
    """Checks `max_debt`, the cost that a key may owe: 0 to `most`, or None for no bound. Raises InvalidLimit."""
    if max_debt is None:
        return
    if isinstance(max_debt, bool) or not isinstance(max_debt, int):
        raise InvalidLimit(text, f"max_debt {shown(max_debt)} is not a whole number; give one, or None for no bound")
    if not 0 <= max_debt <= most:
        raise InvalidLimit(text, f"max_debt {shown(max_debt)} is not between 0 and {most}")
