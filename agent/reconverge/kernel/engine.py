"""Selects the implementation of the kernel: the compiled parts if they were built, else those in Python.

The compiled parts serve only the main interpreter of a process; its subinterpreters decide with Python. The compiled
parts need an interpreter with a global lock. A free-threaded interpreter that imported them would turn its global lock
on for the whole process, so it does not import them, and decides with Python. `RECONVERGE_NO_EXTENSIONS=1` in the
environment selects Python in all cases; so do `yes`, `true` and `on`. With `0`, `no`, `false`, `off` or an empty value
the rules above apply; any other value is an error.
"""

from __future__ import annotations

import copyreg
import dataclasses
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Final, NoReturn

from reconverge.errors import InvalidSetting
from reconverge.hub.checking import answers
from reconverge.kernel import cell as _cell
from reconverge.kernel import decision as _decision
from reconverge.kernel import evicted as _evicted
from reconverge.kernel import lock as _lock
from reconverge.kernel import store as _store
from reconverge.kernel.reporting import agenda as _agenda
from reconverge.kernel.reporting import batches as _reports

_YES: Final = ("1", "yes", "true", "on")
_NO: Final = ("", "0", "no", "false", "off")


def asks_for_python(value: str) -> bool:
    """Returns whether `value`, of RECONVERGE_NO_EXTENSIONS, selects the kernel in Python. Raises InvalidSetting."""
    word = value.strip().lower()
    if word not in (*_YES, *_NO):
        raise InvalidSetting(
            "RECONVERGE_NO_EXTENSIONS", value, f"must be one of {', '.join(_YES)}, or {', '.join(_NO[1:])}, or empty"
        )
    return word in _YES


def runs_without_lock() -> bool:
    """Returns whether this interpreter runs several threads at the same moment, without a global lock."""
    has_lock: Callable[[], bool] = getattr(sys, "_is_gil_enabled", lambda: True)
    return not has_lock()


PYTHON_IS_ASKED_FOR: Final = asks_for_python(os.environ.get("RECONVERGE_NO_EXTENSIONS", ""))
WITHOUT_LOCK: Final = runs_without_lock()
"""Whether the compiled parts are not imported because this interpreter runs without a global lock."""
_MAIN_ONLY: Final = "main interpreter"
"""A part of the message of the ImportError that the compiled parts raise in a subinterpreter."""
_problem = ""

if TYPE_CHECKING or PYTHON_IS_ASKED_FOR or WITHOUT_LOCK:
    native = None
else:
    try:
        import reconverge.kernel._native as native
    except ImportError as error:
        native, _problem = None, str(error)

COMPILED: Final = native is not None
"""Whether the compiled parts are in use."""
MISSING: Final = not (
    COMPILED or PYTHON_IS_ASKED_FOR or WITHOUT_LOCK or _MAIN_ONLY in _problem or "subinterpreter" in _problem
)
"""Whether the compiled parts were not built, though this interpreter would use them."""
IMPLEMENTATION: Final = "native" if COMPILED else "pure"
"""The name of the kernel in use: "native" for the one in C, "pure" for the one in Python."""

if TYPE_CHECKING or not COMPILED:
    Cell = _cell.Cell
    Decision = _decision.Decision
    Store = _store.Store
    Evicted = _evicted.Evicted
    ShardFields = _agenda.ShardFields
    TallyFields = _agenda.TallyFields
    KernelFields = _lock.KernelFields
    Lock = _lock.Lock
    Reentry = _lock.Reentry
    Reports = _reports.Reports
    due_cells = _agenda.due_cells
    put_forward = _agenda.put_forward
    report_cells = _reports.report_cells
    rebase_cells = _reports.rebase_cells
    apply_answers = _reports.apply_answers
    first_odd_cell = answers.first_odd_cell
else:
    Cell = native.Cell
    Decision = native.Decision
    Store = native.Store
    Evicted = native.Evicted
    ShardFields = native.ShardFields
    TallyFields = native.TallyFields
    KernelFields = native.KernelFields
    Lock = native.Lock
    Reentry = native.Reentry
    Reports = native.Reports
    due_cells = native.due_cells
    put_forward = native.put_forward
    report_cells = native.report_cells
    rebase_cells = native.rebase_cells
    apply_answers = native.apply_answers
    first_odd_cell = native.first_odd_cell
    # With these, dataclasses.replace, asdict and fields treat the compiled class like the dataclass that it replaces.
    names = "__dataclass_fields__ __dataclass_params__ __match_args__ switch would_refuse reentered"
    for name in names.split():
        setattr(Decision, name, getattr(_decision.Decision, name))
    assert dataclasses.is_dataclass(Decision)


def _refuse_to_pickle(_store: Store) -> NoReturn:
    raise TypeError(
        "limiter.allow and limiter.hit cannot be pickled, as they belong to the counts of this process; pass the "
        "limiter, which is found by its name, as in pool.submit(RateLimiter.allow, limiter, key)"
    )


copyreg.pickle(Store, _refuse_to_pickle)  # `pickle` makes the object of such a method first


class Unlimited(Decision):
    """The decision of a limit that is switched off: the request is admitted, and nothing was charged."""

    __slots__ = ()
    switch: ClassVar[str] = "off"


class Reentered(Decision):
    """The refusal of a request that was made in the middle of another decision on the same thread."""

    __slots__ = ()
    reentered: ClassVar[bool] = True


class Shadowed(Decision):
    """The decision of a limit in shadow mode (which refuses nothing) that an enforced limit would also have made."""

    __slots__ = ()
    switch: ClassVar[str] = "shadow"


class WouldRefuse(Shadowed):
    """The decision of a limit in shadow mode that admits a request which an enforced limit would have refused.

    Its other fields are those of the refusal. Nothing was charged.
    """

    __slots__ = ()
    would_refuse: ClassVar[bool] = True
