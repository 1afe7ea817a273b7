"""A vocabulary for tests of the border: answers that no hub should give, by name."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any, Final

from reconverge.clock import Clock
from reconverge.hub.report import WHOLE_MAX, Answer, AnswerRows, Batch, CellAnswer, Status
from reconverge_sync.memory import MemoryHub

Nonsense = Callable[[Answer], Any]
"""A function that replaces an answer, which has at least one cell."""


class _Sly:
    """An object that raises an error at every access."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"nobody may ask for {name}")

    def __len__(self) -> int:
        raise RuntimeError("nobody may ask for its length")


def _field(name: str, value: Any) -> Nonsense:
    """Returns a function that changes one of the answer's own fields."""
    return lambda answer: answer._replace(**{name: value})


def _cell(name: str, value: Any) -> Nonsense:
    """Returns a function that changes one field of the answer's last cell."""

    def change(answer: Answer) -> Answer:
        *before, last = answer.cells
        return answer._replace(cells=(*before, last._replace(**{name: value})))

    return change


def _cells(change: Callable[[tuple[Any, ...]], Any]) -> Nonsense:
    return lambda answer: answer._replace(cells=change(tuple(answer.cells)))


def _rows(cell: CellAnswer, *, wide: bool, cut: int = 0) -> AnswerRows:
    """Returns the cell in its packed form, without some bytes at the end."""
    raw = b"".join(
        number.to_bytes(8 if wide or at in (0, 15) else 4, "little", signed=True) for at, number in enumerate(cell)
    )
    return AnswerRows(raw[: len(raw) - cut], wide=wide)


ODD_VALUES: Final[dict[str, Any]] = {
    "None": None,
    "a fraction": 1.5,
    "not a number": math.nan,
    "infinity": math.inf,
    "a word": "soon",
    "bytes": b"1",
    "true": True,
    "a list": [1],
    "an object that raises": _Sly(),
    "2**63": 2**63,
    "2**80": 2**80,
    "-2**62": -(2**62),
}
"""Values that no number in an answer can have."""
AMOUNTS: Final = tuple(name for name in CellAnswer._fields if name not in ("epoch", "current", "previous"))
"""The fields of a cell answer that are never negative."""

WHOLE_ANSWERS: Final[dict[str, Nonsense]] = {
    "None": lambda _: None,
    "a number": lambda _: 7,
    "a word": lambda _: "merged",
    "an empty tuple": lambda _: (),
    "a dictionary": lambda answer: answer._asdict(),
    "a plain tuple": tuple,
    "the cells alone": lambda answer: answer.cells,
    "an error that was returned": lambda _: ValueError("no"),
    "an object that raises": lambda _: _Sly(),
}
HEADERS: Final[dict[str, Nonsense]] = {
    **{f"hub_us {name}": _field("hub_us", value) for name, value in ODD_VALUES.items()},
    "hub_us -1": _field("hub_us", -1),
    "hub_us of the year 2100": _field("hub_us", 4_102_444_800_000_000),
    "hub_us 2**53": _field("hub_us", 2**53),
    "hub_us 2**62": _field("hub_us", 2**62),
    "generation None": _field("generation", None),
    "generation 7": _field("generation", 7),
    "generation of bytes": _field("generation", b"abc"),
    "no generation": _field("generation", ""),
    "generation of a megabyte": _field("generation", "x" * 2**20),
    "generation of half a character": _field("generation", "\ud800"),
    "status None": _field("status", None),
    "status 0": _field("status", 0),
    "status 7": _field("status", 7),
    "status true": _field("status", True),
    "status of a word": _field("status", "MERGED"),
}
CELLS: Final[dict[str, Nonsense]] = {
    "no cells": _cells(lambda _: ()),
    "cells None": _cells(lambda _: None),
    "cells 7": _cells(lambda _: 7),
    "cells of a word": _cells(lambda _: "x"),
    "cells in a list": _cells(list),
    "cells that raise": _cells(lambda _: _Sly()),
    "cells in a generator": _cells(lambda cells: (cell for cell in cells)),
    "one cell more": _cells(lambda cells: (*cells, cells[-1])),
    "one cell less": _cells(lambda cells: cells[:-1]),
    "a cell None": _cells(lambda cells: (None,) * len(cells)),
    "a cell of a word": _cells(lambda cells: ("x" * 16,) * len(cells)),
    "a cell in a list": _cells(lambda cells: tuple(map(list, cells))),
    "a cell with a field less": _cells(lambda cells: tuple(cell[:-1] for cell in cells)),
    "a cell with a field more": _cells(lambda cells: tuple((*cell, 0) for cell in cells)),
    "rows that are cut off": _cells(lambda cells: _rows(cells[-1], wide=False, cut=1)),
    "rows of words": _cells(lambda _: AnswerRows("x" * 72, wide=False)),  # type: ignore[arg-type]
    "rows of nothing": _cells(lambda _: AnswerRows(None, wide=False)),  # type: ignore[arg-type]
    "narrow rows with an allowance below nothing": _cells(
        lambda cells: _rows(cells[-1]._replace(allowance=-1), wide=False)
    ),
    "wide rows with an allowance of 2**62": _cells(lambda cells: _rows(cells[-1]._replace(allowance=2**62), wide=True)),
    "an allowance beyond the capacity": lambda answer: _cell("allowance", answer.cells[-1].capacity + 1)(answer),
    "a base beyond the capacity": lambda answer: _cell("base", answer.cells[-1].capacity + 1)(answer),
    "more free than the capacity": lambda answer: _cell("free", answer.cells[-1].capacity + 1)(answer),
    "a larger capacity": lambda answer: _cell("capacity", answer.cells[-1].capacity + 1)(answer),
    "an overdraft of 2**50": _cell("overdraft", 2**50),
    **{f"{name} -1": _cell(name, -1) for name in AMOUNTS},
    **{f"{name} 2**53+1": _cell(name, WHOLE_MAX + 1) for name in CellAnswer._fields},
    **{
        f"{name} {kind}": _cell(name, value)
        for name in ("epoch", "allowance", "current", "reset_us")
        for kind, value in ODD_VALUES.items()
    },
}
NONSENSE: Final[dict[str, Nonsense]] = {
    **{f"answer: {name}": change for name, change in WHOLE_ANSWERS.items()},
    **HEADERS,
    **CELLS,
}
"""All answers that are refused, by name."""

LIES: Final[dict[str, Nonsense]] = {
    "the hub's clock at 1970": _field("hub_us", 0),
    "the hub's clock at 2099": _field("hub_us", 4_102_444_799_999_999),
    "the hub's clock a day ahead": lambda answer: answer._replace(hub_us=answer.hub_us + 86_400_000_000),
    "the hub's clock a day behind": lambda answer: answer._replace(hub_us=answer.hub_us - 86_400_000_000),
    "another hub": _field("generation", "another"),
    "given up": lambda answer: answer._replace(status=Status.LAPSED, cells=()),
    "old news": lambda answer: answer._replace(status=Status.STALE, cells=()),
    "nothing granted": _cells(
        lambda cells: tuple(cell._replace(allowance=0, base=0, overdraft=0, free=0) for cell in cells)
    ),
    "all is used": _cells(lambda cells: tuple(cell._replace(current=WHOLE_MAX, previous=WHOLE_MAX) for cell in cells)),
    "less than nothing is used": _cells(
        lambda cells: tuple(cell._replace(current=-WHOLE_MAX, previous=-WHOLE_MAX) for cell in cells)
    ),
    "another window": _cells(lambda cells: tuple(cell._replace(epoch=WHOLE_MAX) for cell in cells)),
    "a window long ago": _cells(lambda cells: tuple(cell._replace(epoch=-WHOLE_MAX) for cell in cells)),
    "no capacity": _cells(
        lambda cells: tuple(cell._replace(capacity=0, allowance=0, base=0, overdraft=0, free=0) for cell in cells)
    ),
    "endless needs": _cells(
        lambda cells: tuple(
            cell._replace(needs_milli=WHOLE_MAX, demand_milli=WHOLE_MAX, nodes=WHOLE_MAX, silent=WHOLE_MAX)
            for cell in cells
        )
    ),
}
"""False answers that could be true, by name: a node has to believe each, and to recover after a true answer."""


class OddHub(MemoryHub):
    """Merges every batch, and gives another answer while `odd` is set."""

    odd: Nonsense | None = None
    always = False
    """Whether answers without cells are changed, too."""

    def __init__(self, *, clock: Clock | None = None, shards: int = 1) -> None:
        super().__init__(clock=clock, shards=shards)
        self.said = 0
        """The number of changed answers."""
        self.told: list[Batch] = []

    async def exchange(self, batch: Batch) -> Answer:
        self.told.append(batch)
        answer = await super().exchange(batch)
        if self.odd is None or not (answer.cells or self.always):
            return answer
        self.said += 1
        said: Answer = self.odd(answer)
        await asyncio.sleep(0)
        return said
