"""The cost of a request: a number from the rule, or the price of its kind from the limit's `costs`.

A limit with `costs` charges each kind of request its own price. The kind of a request is its method, unless the rule's
`cost` returns another kind; for gRPC, it is the full name of the called method. A kind without a price costs as much as
the most expensive kind: a client can invent a method, and must not get a lower price for that.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from http import HTTPMethod
from typing import Final, NamedTuple

from reconverge.errors import InvalidCost, InvalidSetting, UnknownKind
from reconverge.limit.checks import ANY_KIND
from reconverge.limit.limit import QUOTA_MAX
from reconverge.limiter.faces.limiter import Limiter

logger = logging.getLogger("reconverge")

_METHODS: Final = frozenset([*map(str, HTTPMethod), "QUERY", "WEBSOCKET"])


class Price(NamedTuple):
    """The cost of one request, as the arguments `cost` and `kind` of `Limiter.hit`."""

    cost: int
    kind: str | None = None
    """The kind of the request, if the limit's quotas have different prices for it, so that each charges its own; else
    None."""
    unknown: UnknownKind | None = None
    """The error to log if the kind has no price and the most expensive kind is charged; else None."""


def checked_cost(cost: object) -> int:
    """Returns a cost that a function has returned. Raises InvalidCost unless it is a whole number of zero or more."""
    if isinstance(cost, bool) or not isinstance(cost, int) or cost < 0:
        raise InvalidCost(cost, "was returned by a function of the rule")
    return int(cost)


def price_of(limiter: Limiter, said: int | str, method: str) -> Price:
    """Returns the price of a request; `said` is its cost as the rule states it, a number or the name of a kind.

    If the limit has `costs`, a number multiplies the price of the kind that belongs to the request's method.
    """
    tables = _tables(limiter)
    if not tables:
        if isinstance(said, str):
            return Price(1, None, UnknownKind(limiter.name, said, ()))
        return Price(said)
    count = 1 if isinstance(said, str) else said
    kind = said if isinstance(said, str) else _kind(tables, method)
    if kind is None and not any(map(_is_about_methods, tables)):
        return Price(count)  # the kinds are not methods, so the number that the application has given is the cost
    prices = [None if kind is None else _price(table, kind) for table in tables]
    if kind is None or None in prices:
        dearest = max(max(table.values()) for table in tables)
        return Price(count * dearest, None, UnknownKind(limiter.name, kind or method, tables[0]))
    known = [price for price in prices if price is not None]
    if len(known) == len(limiter.control.own_limits) and min(known) == max(known):
        return Price(count * known[0])
    return Price(count, kind)


def check_fixed(limiter: Limiter, said: object, what: str) -> None:
    """Raises InvalidSetting for a fixed cost that the limit can never admit, or a kind for which it has no price.

    `said` is the cost or the kind, and `what` is the name of the setting.
    """
    tables = _tables(limiter)
    kinds = sorted({kind for table in tables for kind in table})
    if isinstance(said, str):
        if not tables:
            problem = f"is a kind of request, but limit {limiter.name!r} has no costs by kind"
            raise InvalidSetting(what, said, f"{problem}; write a number, or give the limit costs={{{said!r}: 2}}")
        if any(_price(table, said) is None for table in tables):
            raise InvalidSetting(what, said, f"is not a kind in the costs of the limit; these are: {', '.join(kinds)}")
        return
    if not isinstance(said, int):
        return
    if tables and not any(map(_is_about_methods, tables)):
        problem = f"is a number, but limit {limiter.name!r} has costs for kinds other than methods"
        raise InvalidSetting(what, said, f"{problem}: {', '.join(kinds)}; give the kind, or a function that returns it")
    dearest = max((cost for table in tables for cost in table.values()), default=1)
    most = most_of(limiter)
    if said * dearest > most:
        text = f"comes to {said * dearest}" if tables else "is"
        raise InvalidSetting(
            what,
            said,
            f"{text} more than {most}, the most that the limit {limiter.name!r} ever admits at once: every such"
            " request would be refused for ever; lower the cost, or raise the limit or its burst",
        )


def warn_if_free(name: str, cost: object) -> None:
    """Logs a warning about a fixed cost of 0: unless something else charges the limit, it limits nothing."""
    if type(cost) is int and cost == 0:
        logger.warning(
            "reconverge: the limit %r has cost=0, which charges nothing, so it limits nothing unless something else"
            " charges it; leave cost out, or write a number of at least 1",
            name,
        )


def check_of_call(limiter: Limiter, said: object, what: str) -> None:
    """Raises InvalidSetting for an unusable fixed cost of a function's calls, as `check_fixed` does for requests.

    Calls have no method. So if the limit has `costs`, a number is only allowed with a price for the kind `*`.
    """
    if isinstance(said, int) and _tables(limiter) and any(ANY_KIND not in table for table in _tables(limiter)):
        known = ", ".join(sorted({kind for table in _tables(limiter) for kind in table}))
        problem = (
            f"is a number, but limit {limiter.name!r} has costs by kind: {known}; give the kind, or a cost for '*'"
        )
        raise InvalidSetting(what, said, problem)
    check_fixed(limiter, said, what)


def kind_of_call(limiter: Limiter, said: int | str) -> tuple[int, str | None]:
    """Returns the cost and the kind of a function's call, as `RateLimiter.hit` takes them; the kind may be None.

    Raises UnknownKind.
    """
    if isinstance(said, str):
        return 1, said
    tables = _tables(limiter) if limiter.control.has_costs else []
    if any(ANY_KIND not in table for table in tables):
        raise UnknownKind(limiter.name, said, tables[0])
    return said, ANY_KIND if tables else None


def most_of(limiter: Limiter) -> int:
    """Returns the largest cost that the limit can ever admit; quotas of 0 are left out."""
    own = min(QUOTA_MAX if limit.refuses_all else limit.cost_max for limit in limiter.control.own_limits)
    return max(own, *(limit.cost_max for limit in limiter.quotas.values())) if limiter.control.borrows else own


def _tables(limiter: Limiter) -> list[Mapping[str, int]]:
    return [limit.costs for limit in limiter.control.own_limits if limit.costs is not None]


def _is_about_methods(table: Mapping[str, int]) -> bool:
    return any(kind == ANY_KIND or kind.upper() in _METHODS or kind.startswith("/") for kind in table)


def _price(table: Mapping[str, int], kind: str) -> int | None:
    return table.get(kind, table.get(ANY_KIND))


def _kind(tables: Sequence[Mapping[str, int]], method: str) -> str | None:
    """Returns the kind in `tables`, the quotas' `costs`, for requests with a method; None if no kind fits."""
    for wanted in (method, "GET") if method == "HEAD" else (method,):
        for table in tables:
            for kind in (wanted, wanted.lower(), wanted.capitalize()):
                if kind in table:
                    return kind
    return method if any(ANY_KIND in table for table in tables) else None
