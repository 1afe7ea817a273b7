"""Locks that a forked child finds free, whichever thread of its parent held them."""

# Theory of operation.
#
# A fork copies every lock as it is, but only the thread that forks. A lock that another thread held at that moment is
# held in the child for good, and the next thread that wants it waits for ever.
#
# So every lock of the product is made here, and registered for as long as it lives. In the child, before anything else
# starts over, all locks that other threads held are freed. A lock that the forking thread holds itself stays held: a
# hook or a finalizer may fork in the middle of a section, and the child's copy of that thread leaves the section, too.
#
# The data that such a lock guards may be half changed. Mostly that does no harm: they are replaced in one step, or the
# child starts with new ones. Where it does harm, the lock is `whole`: the fork takes it first, and so waits until the
# thread that holds it has finished its change. The fork waits for WHOLE_WAIT_S at most, as it must not hang. All whole
# locks guard arithmetic, which takes less.
#
# Where gevent or eventlet has replaced locks, their own are used, and are left alone here: green threads live on in the
# child, and let go of what they hold.
#
# `tests/runtime/test_locks.py` finds locks that are made elsewhere. They need a comment `# fork: ` with the reason.

from __future__ import annotations

import os
import threading
import weakref
from concurrent.futures import Future
from typing import Any, Final

from reconverge.clock import SECOND_NS, SystemClock

WHOLE_WAIT_S: Final = 0.1
"""The most seconds that a fork waits for the threads that hold locks of `new_lock(whole=True)`."""
OF_THE_INTERPRETER: Final = "_thread"
"""The module of Python's own lock classes; locks of green threads have classes of another module."""

_known: Final[set[weakref.ref[Any]]] = set()
_whole: Final[dict[weakref.ref[Any], None]] = {}
"""The locks of `new_lock(whole=True)`, in the order in which they were made and in which each fork takes them."""
_taken: Final[dict[int, list[Any]]] = {}
"""For each thread that is about to fork, by its number: the locks that it has taken for that."""


def new_lock(*, whole: bool = False) -> Any:
    """Returns a reentrant lock that a forked child finds free, unless the thread that forks holds it.

    If `whole` is True, a fork first waits for the thread that holds the lock, so that the child does not find the
    guarded data half changed. A change must take milliseconds at most: the fork waits for WHOLE_WAIT_S seconds at most.
    """
    lock = threading.RLock()  # fork: registered below
    return known(lock, whole=whole)


def new_future() -> Future[Any]:
    """Returns a future whose lock is free in a forked child."""
    future: Future[Any] = Future()  # fork: registered below
    known(future._condition._lock)  # type: ignore[attr-defined]  # noqa: SLF001  # the lock of its condition
    return future


def known(lock: Any, *, whole: bool = False) -> Any:
    """Makes forked children find `lock` free, unless it is a lock of gevent or eventlet. Returns `lock`.

    `whole` is as in `new_lock`.
    """
    if type(lock).__module__ == OF_THE_INTERPRETER:
        # The callbacks are methods in C, as a signal handler that raises could interrupt a function in Python.
        _known.add(weakref.ref(lock, _known.discard))
        if whole:
            _whole[weakref.ref(lock, _whole.pop)] = None
    return lock


def _before_fork() -> None:
    until_ns = SystemClock.monotonic_ns() + round(WHOLE_WAIT_S * SECOND_NS)
    taken = _taken.setdefault(threading.get_ident(), [])
    for reference in list(_whole):
        lock = reference()
        if lock is not None and lock.acquire(timeout=max(0.0, (until_ns - SystemClock.monotonic_ns()) / SECOND_NS)):
            taken.append(lock)


def _after_fork_in_parent() -> None:
    for lock in reversed(_taken.pop(threading.get_ident(), [])):
        lock.release()


def _after_fork_in_child() -> None:
    _after_fork_in_parent()
    _taken.clear()  # the threads that have taken locks do not exist in the child
    for reference in list(_known):
        lock = reference()
        if lock is not None and not lock._is_owned():  # noqa: SLF001  # as `threading.Condition` asks
            lock._at_fork_reinit()  # noqa: SLF001  # as `logging` and `concurrent.futures` do


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
