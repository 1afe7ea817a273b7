"""Recognises a process that a server or a pool has started as one of several alike, none of which sees the others."""

# A child process alone says nothing: a supervisor that restarts a server on a change has one child at a time. So
# servers are asked by their settings, which they keep in the process, and pools by what they give to their workers.
# Any other child has others if it is not the first one of its parent, unless a supervisor has started it.

from __future__ import annotations

import inspect
import multiprocessing
import sys
from types import FrameType
from typing import Any, Final

POOL: Final = "multiprocessing.pool"
EXECUTOR: Final = "concurrent.futures.process"
"""The modules of the functions that the workers of a `Pool` and of a `ProcessPoolExecutor` run."""
SUPERVISORS: Final = frozenset({"granian", "watchfiles"})
"""Packages that start a child anew when files change, so that its number says nothing of others."""
TASKS_MAX: Final = 4
"""The index, among a `Pool`'s arguments of that function, of the number of tasks after which a worker is replaced."""


def is_starting() -> bool:
    """Returns whether `multiprocessing` still imports the main module here; it is not known yet what will run."""
    return getattr(multiprocessing.current_process(), "_inheriting", False) is True


def one_of_several() -> str | None:
    """Returns a description of this process, such as `one of 3 workers of gunicorn`; None if no others are known."""
    process: Any = multiprocessing.current_process()
    module = getattr(getattr(process, "_target", None), "__module__", "")
    if module == "uvicorn._subprocess":
        return _of_uvicorn(getattr(process, "_kwargs", {}).get("config"))
    if module == POOL:
        return "a worker of a multiprocessing.Pool" if _is_beside_others(process) else None
    if module == EXECUTOR:
        # The queue of calls has room for one call more than there are workers.
        room = getattr(next(iter(process._args), None), "_maxsize", 0)  # noqa: SLF001  # nothing public tells it
        return f"one of up to {room - 1} workers of a ProcessPoolExecutor" if room > 2 else None
    number = next(reversed(process._identity), 0)  # noqa: SLF001  # nothing public tells it
    if number > 1 and module.partition(".")[0] not in SUPERVISORS:
        return f"number {number} of those that its parent has started by multiprocessing"
    return _of_gunicorn() if "gunicorn.arbiter" in sys.modules else None


def _is_beside_others(worker: Any) -> bool:
    """Returns whether a worker of a `Pool` is not the first process that its parent has started.

    Nothing tells the size of the pool; one that replaces its workers may have just one at a time.
    """
    number, given = worker._identity[-1], worker._args  # noqa: SLF001  # nothing public tells them
    is_replaced = len(given) > TASKS_MAX and given[TASKS_MAX] is not None
    return number > 1 and not is_replaced


def _of_uvicorn(config: Any) -> str | None:
    workers = getattr(config, "workers", None)
    if not isinstance(workers, int) or workers < 2 or getattr(config, "should_reload", True):
        return None
    return f"one of {workers} workers of uvicorn"


def _of_gunicorn() -> str | None:
    """Returns the description of a worker, in which the function of the arbiter that has forked it has not returned."""
    frame: FrameType | None = inspect.currentframe()
    while frame is not None:
        if frame.f_code.co_name == "spawn_worker" and frame.f_globals.get("__name__") == "gunicorn.arbiter":
            workers = getattr(frame.f_locals.get("self"), "num_workers", None)
            return f"one of {workers} workers of gunicorn" if isinstance(workers, int) and workers > 1 else None
        frame = frame.f_back
    return None
