"""Decides about many keys of one limit in one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias, cast

from reconverge.errors import InvalidSetting
from reconverge.kernel.composite.decider import Decider
from reconverge.kernel.engine import COMPILED, native
from reconverge.kernel.keys import plain_key

Many: TypeAlias = Sequence[int] | memoryview
"""The costs of many keys, one for each key. A buffer of signed 64-bit numbers, such as `array("q")`, is not copied."""


def many_of(table: Decider) -> Callable[[Sequence[str], Many | None], list[bool]]:
    """Returns the function by which a limit decides about many keys in one call: a compiled one, or `allow_many`.

    The function takes the keys, and their costs or None; it returns for each key whether its request is admitted.
    """
    if COMPILED and len(table.tables) == 1:
        compiled: Callable[[Sequence[str], Many | None], list[bool]] = cast("Any", table.tables[0].cells).allow_many
        return compiled
    return partial(allow_many, table)


def allow_many(table: Decider, keys: Sequence[str], costs: Many | None = None) -> list[bool]:
    """Returns for each of `keys`, in order, whether its request is admitted, and charges the admitted ones.

    `costs[i]` is the cost for `keys[i]`; None means that each costs 1. Checks all arguments before it charges any key.
    """
    bytes_max = table.tables[0].kernel.key_bytes_max
    checked = [plain_key(key, bytes_max) for key in keys]
    if costs is None:
        return [table.allow(key) for key in checked]
    wanted = list(costs)
    if len(wanted) != len(checked):
        raise InvalidSetting("costs", wanted, f"has {len(wanted)} numbers for {len(checked)} keys; give one for each")
    for cost in wanted:
        table.able(table.costs_of(cost))
    return [table.allow(key, cost) for key, cost in zip(checked, wanted, strict=True)]


if COMPILED:
    cast("Any", native).use_many(allow_many)
