"""Threads, locks and counters that work in any thread and signal handler, also where Python's own were replaced."""

# Theory of operation.
#
# Three facts shape this file.
#
# gevent replaces what `threading`, `_thread`, `select` and `socket` offer by greenlets and locks that switch between
# them. An event loop on such a "thread" would block all other greenlets for as long as it waits. So the exchanges run
# on a thread of the operating system, made by the original functions. They are looked up when this file is imported,
# before or after gevent has patched: a name that is bound here is not patched any more.
#
# `threading.Thread.start` waits for the new thread, under a lock of the module that the interrupted frame may hold when
# a signal handler or a finalizer decides. `_thread.start_new_thread` returns at once and takes no lock.
#
# `threading.Event` holds a lock of its own while it is set, cleared or waited for. A signal handler that sets the event
# which its own thread is just setting waits for ever. The two tools here consist of one lock of the operating system
# each; every operation on it is a single call into C, in the midst of which no other Python code of the thread runs.
from __future__ import annotations

import importlib
import select
import selectors
import socket
import sys
import threading
from collections.abc import Callable
from functools import cache
from itertools import repeat
from operator import length_hint
from typing import Any, Final, TypeVar

from reconverge.runtime.locks import known

T = TypeVar("T")

GEVENT: Final = "gevent"
EVENTLET: Final = "eventlet"
NUMBERS_APART: Final = 64
INTERPRETERS_APART: Final = 16
"""The number of interpreters that get NUMBERS_APART thread numbers each, so that their threads have different numbers.
Skipping a number takes 0.1 ms."""


def _original(module: str, name: str) -> Any:
    monkey = sys.modules.get("gevent.monkey")
    found = getattr(importlib.import_module(module), name)
    return found if monkey is None else monkey.get_original(module, name)


_start_new_thread: Callable[..., int] = _original("_thread", "start_new_thread")
_allocate_lock: Callable[[], Any] = _original("_thread", "allocate_lock")  # fork: every wait for these has a timeout
thread_id: Callable[[], int] = _original("_thread", "get_ident")
"""Returns the number of the operating system's thread that runs now; all its greenlets share it."""
_new_rlock: Callable[[], Any] = _original("_thread", "RLock")  # fork: `Section` registers them
_poll: Any = _original("select", "poll") if hasattr(select, "poll") else None
_getaddrinfo: Callable[..., Any] = _original("socket", "getaddrinfo")


class _Poll(getattr(selectors, "PollSelector", selectors.SelectSelector)):  # type: ignore[misc]  # one of the two
    _selector_cls = _poll


@cache
def in_main_interpreter() -> bool:
    """Returns whether this is the interpreter with which the process began, and not a subinterpreter."""
    for name in ("_interpreters", "_xxsubinterpreters"):
        try:
            interpreters = importlib.import_module(name)
            return bool(interpreters.get_current() == interpreters.get_main())
        except (ImportError, AttributeError):
            continue
    return True


def green_threads() -> str:
    """Returns GEVENT or EVENTLET if that library has replaced Python's threads by green threads; otherwise ""."""
    monkey = sys.modules.get("gevent.monkey")
    if monkey is not None and monkey.is_module_patched("threading"):
        return GEVENT
    patcher = sys.modules.get("eventlet.patcher")
    if patcher is not None and any(map(patcher.is_monkey_patched, ("thread", "socket", "select"))):
        return EVENTLET
    return ""


def start_thread(run: Callable[[], None], *, name: str) -> threading.Thread | None:
    """Starts a thread that calls `run`, and does not keep the process from ending. Returns at once.

    Returns None in the main interpreter. In a subinterpreter, a thread that still runs at the end would crash the
    process, so there it returns the thread for the caller to join. Raises RuntimeError if no thread can be started.
    """
    if not in_main_interpreter():
        _leave_numbers_to_others()
        try:
            thread = threading.Thread(target=run, name=name, daemon=True)
        except RuntimeError:  # an isolated interpreter has no daemons, and waits for all threads when it ends
            thread = threading.Thread(target=run, name=name, daemon=False)
        thread.start()
        return thread
    if green_threads() == GEVENT:
        # Two threads that make their first hub at the same time wait for each other's imports for ever.
        importlib.import_module(GEVENT).get_hub()
        _start_new_thread(_run_beside_greenlets, (run,))
    else:
        _start_new_thread(run, ())
    return None


def _leave_numbers_to_others() -> None:
    """Skips thread numbers, so that this interpreter's next thread gets a number that other interpreters hardly use.

    Until Python 3.12, asyncio remembers the running loop of the whole process by the number of its thread, and every
    interpreter counts from one. Loops of two interpreters on threads of the same number take each other for their own.
    """
    if sys.version_info >= (3, 12):
        return
    number = int(importlib.import_module("_xxsubinterpreters").get_current())
    for _ in range(NUMBERS_APART * (1 + number % INTERPRETERS_APART)):
        thread = threading.Thread(target=int)
        thread.start()
        thread.join()


def _run_beside_greenlets(run: Callable[[], None]) -> None:
    """Calls `run` with a gevent hub (event loop) of this thread's own, which locks shared with greenlets need."""
    hub = importlib.import_module(GEVENT).get_hub()
    try:
        run()
    finally:
        hub.destroy(destroy_loop=True)


def new_selector() -> selectors.BaseSelector:
    """Returns a selector that blocks the thread, and keeps nothing in the kernel that a forked child would share."""
    return _Poll()


def addresses_of(*question: Any) -> Any:
    """Returns the addresses of a host name, as `socket.getaddrinfo` does; blocks the thread meanwhile."""
    return (_getaddrinfo if green_threads() else socket.getaddrinfo)(*question)


class WakeEvent:
    """An event for one waiting thread: `wake` ends its `wait`. Several calls of `wake` before a `wait` count as one."""

    def __init__(self) -> None:
        self._quiet = _allocate_lock()
        self._quiet.acquire()

    @property
    def woken(self) -> bool:
        """Returns whether `wake` was called since the last `wait`, so that the next `wait` returns at once."""
        return not self._quiet.locked()

    def wake(self) -> None:
        """Ends the current or the next `wait`. Never blocks, and may be called from any thread or signal handler."""
        try:
            self._quiet.release()
        except RuntimeError:  # the event is set already
            return

    def wait(self, timeout_s: float) -> bool:
        """Waits at most `timeout_s` seconds for `wake`; returns whether it was called, and resets the event."""
        rung: bool = self._quiet.acquire(timeout=min(max(0.0, timeout_s), threading.TIMEOUT_MAX))
        return rung

    def clear(self) -> None:
        """Forgets calls of `wake`, so that the next `wait` waits."""
        self._quiet.acquire(blocking=False)


class Latch:
    """A condition that becomes true once and stays so; any number of threads can wait for it."""

    def __init__(self) -> None:
        self._closed = _allocate_lock()
        self._closed.acquire()
        self.open = False

    def set(self) -> None:
        """Makes the condition true."""
        self.open = True
        try:
            self._closed.release()
        except RuntimeError:  # set before, or passed on just now by a thread that had waited
            return

    def wait(self, timeout_s: float) -> bool:
        """Waits until the condition is true, for at most `timeout_s` seconds; returns whether it is true."""
        if not self.open and self._closed.acquire(timeout=min(max(0.0, timeout_s), threading.TIMEOUT_MAX)):
            self.set()
        return self.open


class Section:
    """A critical section: one thread at a time may be in it. A thread can ask whether it is in the section already.

    Signal handlers and finalizers ask that, as they may interrupt their own thread in the middle of the section.

    A handler may then read the guarded data, and must put off its changes until the section is left. An exception that
    a handler raises in the section leaves the section.
    """

    def __init__(self) -> None:
        self._lock = known(_new_rlock())

    def entered(self) -> bool:
        """Returns whether this thread is in the section already, further up the stack."""
        inside: bool = self._lock._is_owned()  # noqa: SLF001  # `threading.Condition` asks so, too
        return inside

    def run(self, function: Callable[[], T], *, waits: bool = True) -> T:
        """Calls `function` in the section and returns its result; waits while another thread is in the section.

        If `waits` is False, calls `function` at once even if another thread is in the section: that thread may be
        waiting for this caller.
        """
        if self.entered():
            return function()
        try:
            try:
                self._lock.acquire(blocking=waits)
                return function()
            finally:
                self._leave()
        finally:
            self._leave()  # once more: a handler that raised while the section was being left would leave it locked

    def _leave(self) -> None:
        while self.entered():
            self._lock.release()


# A signal handler or a finalizer may count in the middle of its own thread's counting: it would wait for a plain lock
# for ever, and two statements such as `total += 1` would lose what came in between. One step of a C iterator counts,
# and nothing else of the interpreter's runs in the middle of that.
MOST: Final = sys.maxsize


class Total:
    """A number that only rises. Any thread may add to it or read it at any time, without a lock."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = repeat(None, MOST)

    def add(self, count: int = 1) -> None:
        """Adds `count` to the number. If an exception interrupts this, the part that was already added stays."""
        if count == 1:  # nearly always, and a range takes longer than the count
            next(self._left)
            return
        for _ in range(count):
            next(self._left)

    @property
    def value(self) -> int:
        """Returns the present number."""
        return MOST - length_hint(self._left)
