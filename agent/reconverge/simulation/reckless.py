"""Gives silence and recall absurd constants, and counts both, to test that no bound depends on their constants."""

# Theory of operation.
#
# The claim. A silent node leaves charges unreported (`kernel/reporting/silence.py`). Its constants decide how much is
# refused too early, and never how much is admitted. With the constants of production a test can hardly break that: they
# are cautious, so few cells are silent, and for moments in which nothing happens.
#
# How it is tried. Here no constant is cautious: all margins are zero, and no amount is compared. A cell falls silent
# with any unused allowance after an answer, however little the fleet has left, however few requests the limit has, and
# without a base allowance. Then it leaves nine tenths of that allowance unreported (instead of one eighth), for half of
# a window (instead of a sixteenth). Rules without a constant stay in force: a cell with an ask or a waiter, or with an
# answer about another window, is not silent.
#
# The constants and the functions that compare amounts are names in modules, which other modules import; no setting has
# them, as no user should. So for a while each name is bound to another value in all modules that have it. Modules that
# are imported meanwhile get that value too, and lose it like all others. In the compiled kernel the constants are
# macros, so it must be the one in Python. No hub is imported, but by its name, as nothing of the agent knows one.
#
# The longest silence is half of all windows up to a minute. In longer ones, as those of the fuzz's mode "liveness", the
# nodes would not agree within the window, and nothing could be judged.

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import astuple, dataclass
from functools import wraps
from importlib import import_module
from typing import Any, Final

from reconverge.kernel import COMPILED, Cell
from reconverge.kernel.reporting import cell_reports, requests, silence

PACKAGES: Final = ("reconverge", "reconverge_sync")
LONGEST_S: Final = 30
"""The longest silence, in seconds."""


def _is_always_comfortable(cell: Cell, headroom: int, expected: float) -> bool:  # noqa: ARG001
    return silence._may_be_silent(cell) and cell.held and not (cell.ask or cell.reserved)


def _asks_for_no_base(cell: Cell, needs: float) -> bool:  # noqa: ARG001
    return True


def _speaks_below_a_tenth(cell: Cell) -> int:
    """Returns a tenth of the unused allowance after the last answer; the low-water mark is six tenths of that."""
    return cell.low_water // 6


_HEADROOM: Final = "reconverge.hub.headroom"
_RECALLING: Final = "reconverge_sync.merge.recalling"
ABSURD: Final[Mapping[tuple[str, str], Any]] = {
    (silence.__name__, "is_comfortable"): _is_always_comfortable,
    (silence.__name__, "_begins_well"): _asks_for_no_base,
    (silence.__name__, "speaks_below"): _speaks_below_a_tenth,
    (_HEADROOM, "REQUESTS_MIN"): 0,
    (_HEADROOM, "WINDOW_SHARE"): 2,
    (_HEADROOM, "SILENCE_MAX_S"): LONGEST_S,
    (_HEADROOM, "UNRECALLED_SILENCE_S"): LONGEST_S,
    (_HEADROOM, "SEALED_AFTER_S"): 0,
    (_HEADROOM, "SEALED_INTERVALS"): 0,
    (_RECALLING, "NEEDS_LACKED"): 40,
    (_RECALLING, "SURPLUS"): -1e6,
}
"""For each constant or function, by its module and its name: the value that replaces it. With these values a hub
recalls what a node may come to lack, even if the other nodes need all that they hold."""


@dataclass(slots=True)
class SilenceCount:
    """Counts what has happened to silent cells, so that a test can show that there were some."""

    answers: int = 0
    """The number of answers about a cell."""
    silences: int = 0
    """The number of answers after which the cell was silent, that is, would leave charges unreported."""
    charges: int = 0
    """The number of decisions on the slow path that charged a silent cell: at least one in each silence in which there
    are charges. Charges on the fast path are not counted."""
    recalls: int = 0
    """The number of recalls that made a node report a cell."""
    interrupted: int = 0
    """The number of recalls that ended a silence."""

    def add(self, other: SilenceCount) -> None:
        """Adds the counts of `other` to these."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def __sub__(self, other: SilenceCount) -> SilenceCount:
        return SilenceCount(*(one - before for one, before in zip(astuple(self), astuple(other), strict=True)))

    def copy(self) -> SilenceCount:
        return SilenceCount(*astuple(self))

    def __str__(self) -> str:
        return (
            f"{self.silences:,} of {self.answers:,} answers began a silence, {self.charges:,} charges were silent, "
            f"{self.recalls:,} recalls were heard, {self.interrupted:,} of them by a silent cell"
        )


_counts: Final[list[SilenceCount]] = []
"""A list with the counts of the `with` block of `reckless()` that is being run; empty if there is none."""


def is_reckless() -> bool:
    """Returns whether silence has absurd constants now, that is, whether a block of `reckless()` is being run."""
    return bool(_counts)


def count_so_far() -> SilenceCount:
    """Returns a copy of the counts of the block that is being run; all 0 outside of such a block."""
    return _counts[-1].copy() if _counts else SilenceCount()


@contextmanager
def reckless() -> Iterator[SilenceCount]:
    """Makes silence reckless in this process for the time of the block, and yields what is counted meanwhile.

    Raises RuntimeError if the compiled kernel is in use, or within another such block.
    """
    if COMPILED:
        raise RuntimeError("the compiled kernel has its own constants of silence; set RECONVERGE_NO_EXTENSIONS=1")
    if _counts:
        raise RuntimeError("another block of `reckless()` is being run; do not nest such blocks")
    count = SilenceCount()
    absurd = {**ABSURD, **_counting(count)}
    _counts.append(count)
    try:
        with bound(absurd):
            yield count
    finally:
        _counts.clear()


def reckless_if(*, wanted: bool) -> AbstractContextManager[SilenceCount]:
    """Returns a context like `reckless()` if `wanted`, else one that changes and counts nothing."""
    return reckless() if wanted else nullcontext(SilenceCount())


@contextmanager
def bound(values: Mapping[tuple[str, str], Any]) -> Iterator[None]:
    """Replaces values of modules in this process during the `with` block; `values` has the form of `ABSURD`."""
    proper = {(module, name): getattr(import_module(module), name) for module, name in values}
    try:
        _bind(proper, values)
        yield
    finally:
        _bind(values, proper)


def _bind(former: Mapping[tuple[str, str], Any], latter: Mapping[tuple[str, str], Any]) -> None:
    """In all modules of the project, replaces the value that a name has in `former` by its value in `latter`."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] not in PACKAGES:
            continue
        for (definer, what), value in former.items():
            if vars(module).get(what) is value:
                setattr(module, what, latter[definer, what])


def _counting(count: SilenceCount) -> dict[tuple[str, str], Any]:
    """Returns functions that do the same as those that they replace, and count."""
    hears_answer, hears_recall, stays_silent = (
        cell_reports.apply_answer,
        requests.report_recalled,
        requests.stay_silent,
    )

    @wraps(hears_answer)
    def after_answer(cell: Cell, *rest: Any) -> None:
        hears_answer(cell, *rest)
        count.answers += 1
        count.silences += cell.comfortable

    @wraps(stays_silent)
    def after_charge(cell: Cell, now_ns: int) -> None:
        count.charges += 1
        stays_silent(cell, now_ns)

    @wraps(hears_recall)
    def after_recall(cell: Cell, needs_milli: int, now_ns: int) -> None:
        silent = cell.comfortable
        before = cell.comfortable, cell.dirty, cell.urgent
        hears_recall(cell, needs_milli, now_ns)
        count.recalls += before != (cell.comfortable, cell.dirty, cell.urgent)
        count.interrupted += silent and not cell.comfortable

    return {
        (cell_reports.__name__, "apply_answer"): after_answer,
        (requests.__name__, "stay_silent"): after_charge,
        (requests.__name__, "report_recalled"): after_recall,
    }
