"""The lock of a limit, which detects a thread that would wait for itself. The compiled kernel has the same in C."""

# Theory of operation.
#
# A decision may be interrupted at any instruction: by a signal handler, a finalizer, a callback of the collector, a
# tracer. That code may ask for a decision that needs the same lock, on the same thread. With a plain lock the thread
# would wait for itself for ever, and with a lock that may be taken twice the second decision would find a cell in the
# middle of a change. So the second call fails with `Reentry`, changes nothing, and is answered by a rule that keeps the
# bound:
#
# - a request for admission (`allow`, `hit`, `reserve`, `wait`) is refused, and `test` returns a refusal;
# - a mere look (`usage`) reads the cell as it stands;
# - a call that must not be lost (`reset`, `refund`, a settlement, `warm`, a change) is put off until no lock is held.
#
# A thread that is in the middle of one decision does not wait for another thread, either, because that one may be
# waiting for this thread: if the other lock is held, the same rule answers.
#
# While a thread holds the lock it waits for nothing else, and no callback runs. Further work, such as waking the
# exchange loop, is queued, and done after the lock is released (`Node.do_after_unlock`).
#
# An interruption may also raise an exception: a soft time limit, Ctrl-C. CPython raises those only where a function is
# called or begins, and where a loop begins again. There is no such place between taking the lock in C and the protected
# part of `with`, nor between that part and the release. A tracer can raise anywhere, so that the lock may stay taken
# although no work goes on under it. A thread that finds it taken looks for a frame of `run` that will release it, and
# takes the lock over if there is none.
#
# The price is a call, a thread's number and a flag for each decision on the slow path, 0.3 to 0.4 us; no other form was
# found that holds at every instruction. The lock of the compiled kernel costs nothing more.

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Callable, Iterable
from threading import get_ident
from types import CodeType, FrameType
from typing import Any, Final, TypeVar, TypeVarTuple

from reconverge.errors import PortableError

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

NAP_S: Final = 0.0005
"""The seconds for which a waiting thread sleeps before it looks again at a lock that is held."""
NAPS_MAX: Final = 2000
"""After this many sleeps, a second or more, a waiting thread checks whether any thread will ever release the lock."""


class KernelFields:
    """The fields of a `Node` that the locks and the tables of limits read and change."""

    keys: int
    """The number of keys that the node keeps, over all limits; without those that it only counts together, for want of
    room."""
    keys_max: int
    turn: int
    """A number that rises with each search for keys to evict, so that each search begins with another limit."""
    after_unlock: bool
    """Whether some work waits until no lock is held; see `Node.do_after_unlock`."""
    wake_wanted: bool
    """Whether the exchange loop must be woken as soon as no lock is held."""

    def do_after_unlock(self) -> None:
        """Does the work that was put off while a lock was held."""
        raise NotImplementedError


class Reentry(PortableError, RuntimeError):
    """Raised when a thread in the middle of a decision makes a call that would wait, and so might wait for ever."""

    def __init__(self) -> None:
        super().__init__("this thread is in the middle of a decision about the same limit")


def _plain_lock() -> Any:
    """Returns a lock of the interpreter, even if gevent or eventlet has replaced `_thread.allocate_lock`.

    With a lock of gevent or eventlet, a greenlet that waits would let other greenlets run in the middle of protected
    work.
    """
    import _thread  # noqa: PLC0415  # imported here, because gevent may have patched it since

    gevent: Any = sys.modules.get("gevent.monkey")
    if gevent is not None:
        return gevent.get_original("_thread", "allocate_lock")()  # fork: `_is_abandoned` finds it
    eventlet: Any = sys.modules.get("eventlet.patcher")
    if eventlet is not None:
        return eventlet.original("_thread").allocate_lock()  # fork: likewise
    return _thread.allocate_lock()  # fork: likewise


class Lock:
    """The lock of a limit, which raises Reentry where a plain lock would wait for its own thread.

    `run` holds the lock during the arithmetic of one key; `with` is for callers outside of decisions.
    """

    __slots__ = ("_inner", "_kernel", "locked", "owner")

    def __init__(self, kernel: KernelFields) -> None:
        self._inner = _plain_lock()
        self._kernel = kernel
        self.owner = 0
        """The number of the thread that took the lock last; negative if it took it without `run`.

        The owner is 0 only while no work goes on under the lock: it is set before the work begins, and reset to 0 only
        after work that no exception has cut short."""
        self.locked: Callable[[], bool] = self._inner.locked
        """Returns whether the lock is held."""

    def run(self, work: Callable[[*Ts], T], *args: *Ts) -> T:
        """Calls `work(*args)` with the lock held, and returns its result.

        Raises Reentry if this thread holds the lock.
        """
        if self.locked():
            self._wait()
        with self._inner:
            self.owner = get_ident()
            result = work(*args)
            self.owner = 0
        if self._kernel.after_unlock:
            self._kernel.do_after_unlock()
        return result

    def run_if_free(self, work: Callable[[*Ts], T], *args: *Ts) -> T | None:
        """Calls `work(*args)` as `run` does if the lock is free. Otherwise does nothing and returns None."""
        return None if self.locked() else self.run(work, *args)

    def acquire(self, *, blocking: bool = True) -> bool:
        """Takes the lock; returns whether it was taken. Raises Reentry if this thread holds it already."""
        if blocking and self.locked():
            self._wait()
        taken: bool = self._inner.acquire(blocking)
        if taken:
            self.owner = -get_ident()
        return taken

    def release(self) -> None:
        """Releases the lock, then does the work that was put off while it was held."""
        self._inner.release()
        if self._kernel.after_unlock:
            self._kernel.do_after_unlock()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def _wait(self) -> None:
        """Waits until the lock may be free. Raises Reentry if this thread holds the lock.

        This method only looks at the lock: an exception between taking and releasing it would leave it taken.
        """
        me = get_ident()
        if self.owner == -me or _runs(sys._getframe(2)):  # noqa: SLF001  # `sys` documents it
            raise Reentry
        nap = _plain_lock()
        nap.acquire()  # never released: to wait for it is to sleep
        naps = 0
        while self.locked():
            if (self.owner == me or naps == NAPS_MAX) and self._is_abandoned():
                with contextlib.suppress(RuntimeError):  # another thread was faster
                    self._inner.release()
                return
            if self.owner == me:  # another greenlet of this thread holds the lock
                raise Reentry
            naps = naps % NAPS_MAX + 1
            nap.acquire(timeout=NAP_S)

    def _is_abandoned(self) -> bool:
        """Returns whether the lock is held, and no thread or greenlet will ever release it."""
        return self.owner >= 0 and not any(_runs(frame, self) for frame in _all_frames())


RUN: Final[CodeType] = Lock.run.__code__
WAIT: Final[CodeType] = Lock._wait.__code__  # noqa: SLF001  # of the class above


def _runs(frame: FrameType | None, lock: Lock | None = None) -> bool:
    """Returns whether `frame` or one of its callers works under `lock`, or is about to; if None, under any lock.

    A frame that waits for a lock does not work under it, and will not release it.
    """
    waits = False
    while frame is not None:
        if frame.f_code is RUN and not waits and (lock is None or frame.f_locals["self"] is lock):
            return True
        waits = frame.f_code is WAIT
        frame = frame.f_back
    return False


def in_a_decision() -> bool:
    """Returns whether the caller, such as a signal handler, has interrupted its own thread in the middle of a decision.

    Other threads may be waiting for that decision. The compiled kernel is never interrupted in the middle of a
    decision.
    """
    return _runs(sys._getframe(1))  # noqa: SLF001  # as above


def _all_frames() -> Iterable[FrameType | None]:
    """Returns the current frame of each thread, and of each greenlet that is suspended."""
    yield from sys._current_frames().values()  # noqa: SLF001  # likewise
    greenlet: Any = sys.modules.get("greenlet")
    if greenlet is not None:
        # `type` and not `isinstance`, which asks an object for its class: a proxy would run code of its own.
        yield from (each.gr_frame for each in gc.get_objects() if issubclass(type(each), greenlet.greenlet))
