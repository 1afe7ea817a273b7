"""The cost of a request: a number of the rule, or the price of its kind in the limit's own table.

A limit with `costs` charges each kind of request its own price. The kind of a request is its method, unless the rule
says another one by `cost`; for gRPC, it is the full name of the method that is called. What has no price in the table
costs as much as the dearest kind that is in it: a client can make up a method, and must not get a better price for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPMethod
from typing import Final, NamedTuple

from reconverge.errors import InvalidCost, InvalidSetting, UnknownKind
from reconverge.limit.checks import ANY_KIND
from reconverge.limiter.faces.limiter import Limiter

_METHODS: Final = frozenset([*map(str, HTTPMethod), "QUERY", "WEBSOCKET"])


class Price(NamedTuple):
    """The cost of one request, as `Limiter.hit` takes it."""

    cost: int
    kind: str | None = None
    """Where several quotas of the limit have different prices for it, and each has to look for its own."""
    unknown: UnknownKind | None = None
    """The mistake, where the table has no price; then the cost is that of the dearest kind."""


def checked_cost(cost: object) -> int:
    """A cost that a function has returned. Raises InvalidCost unless it is a whole number of zero or more."""
    if isinstance(cost, bool) or not isinstance(cost, int) or cost < 0:
        raise InvalidCost(cost, "was returned by a function of the rule")
    return int(cost)


def price_of(limiter: Limiter, said: int | str, method: str) -> Price:
    """Prices a request. `said` is a number of requests of the kind that the method is, or another kind."""
    tables = _tables(limiter)
    if not tables:
        if isinstance(said, str):
            return Price(1, None, UnknownKind(limiter.name, said, ()))
        return Price(said)
    count = 1 if isinstance(said, str) else said
    kind = said if isinstance(said, str) else _kind(tables, method)
    if kind is None and not any(map(_is_about_methods, tables)):
        return Price(count)  # kinds that only the application knows, and it has said a number
    prices = [None if kind is None else _price(table, kind) for table in tables]
    if kind is None or None in prices:
        dearest = max(max(table.values()) for table in tables)
        return Price(count * dearest, None, UnknownKind(limiter.name, kind or method, tables[0]))
    known = [price for price in prices if price is not None]
    if len(known) == len(limiter.control.own_limits) and min(known) == max(known):
        return Price(count * known[0])
    return Price(count, kind)


def check_fixed(limiter: Limiter, said: object, what: str) -> None:
    """Raise InvalidSetting for a cost that is the same for every request, and can never be admitted or has no price.

    `what` is the name of the setting that says it.
    """
    tables = _tables(limiter)
    kinds = sorted({kind for table in tables for kind in table})
    if isinstance(said, str):
        if not tables:
            raise InvalidSetting(what, said, f"is a kind of request, and limit {limiter.name!r} has no costs by kind")
        if any(_price(table, said) is None for table in tables):
            raise InvalidSetting(what, said, f"is no kind of request that the limit's costs name: {', '.join(kinds)}")
        return
    if not isinstance(said, int):
        return
    if tables and not any(map(_is_about_methods, tables)):
        problem = f"is a number, and limit {limiter.name!r} has costs for kinds of requests that are no methods"
        raise InvalidSetting(what, said, f"{problem}: {', '.join(kinds)}; give the kind, or a function that returns it")
    dearest = max((cost for table in tables for cost in table.values()), default=1)
    most = most_of(limiter)
    if said * dearest > most:
        text = f"comes to {said * dearest}" if tables else "is"
        raise InvalidSetting(
            what,
            said,
            f"{text} more than {most}, which is all that the limit {limiter.name!r} ever admits at once: every such"
            " request would be refused for ever; lower the cost, or raise the limit or its burst",
        )


def check_of_call(limiter: Limiter, said: object, what: str) -> None:
    """Checks the cost of a call of a function, which has no method, as `check_fixed` does."""
    if isinstance(said, int) and _tables(limiter) and any(ANY_KIND not in table for table in _tables(limiter)):
        known = ", ".join(sorted({kind for table in _tables(limiter) for kind in table}))
        problem = (
            f"is a number, and limit {limiter.name!r} has costs by kind: {known}; give the kind, or a cost for '*'"
        )
        raise InvalidSetting(what, said, problem)
    check_fixed(limiter, said, what)


def kind_of_call(limiter: Limiter, said: int | str) -> tuple[int, str | None]:
    """The cost and the kind of a call of a function, as `RateLimiter.hit` takes them. Raises UnknownKind."""
    if isinstance(said, str):
        return 1, said
    tables = _tables(limiter) if limiter.control.has_costs else []
    if any(ANY_KIND not in table for table in tables):
        raise UnknownKind(limiter.name, said, tables[0])
    return said, ANY_KIND if tables else None


def most_of(limiter: Limiter) -> int:
    """The largest cost that the limit can ever admit."""
    own = min(limit.cost_max for limit in limiter.control.own_limits)
    return max(own, *(limit.cost_max for limit in limiter.quotas.values())) if limiter.control.borrows else own


def _tables(limiter: Limiter) -> list[Mapping[str, int]]:
    return [limit.costs for limit in limiter.control.own_limits if limit.costs is not None]


def _is_about_methods(table: Mapping[str, int]) -> bool:
    return any(kind == ANY_KIND or kind.upper() in _METHODS or kind.startswith("/") for kind in table)


def _price(table: Mapping[str, int], kind: str) -> int | None:
    return table.get(kind, table.get(ANY_KIND))


def _kind(tables: Sequence[Mapping[str, int]], method: str) -> str | None:
    """Returns the tables' word for the requests of a method; None where they have none."""
    for wanted in (method, "GET") if method == "HEAD" else (method,):
        for table in tables:
            for kind in (wanted, wanted.lower(), wanted.capitalize()):
                if kind in table:
                    return kind
    return method if any(ANY_KIND in table for table in tables) else None
