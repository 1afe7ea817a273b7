"""Notifies agents of forks and of the end of the process, and has context managers for starting other processes."""

# Theory of operation.
#
# A fork copies allowances, counts and connections, and the threads are gone. The child is a node of its own: it drops
# all three and takes a new name (`Agent.start_over_after_fork`), because two processes under one name would replace
# each other's counts at the hub.
#
# A process that ends sends its last reports: they carry all counts, and give the allowances back at once; otherwise
# these would count as used until their lease ends. SIGTERM ends a process without `atexit`, so this module handles it,
# but only where the application does not.
#
# Daemons of `multiprocessing` are left to end at once. `with Pool(4)` ends by SIGTERM to each worker, sent once, and a
# `join` without limit. A handler in Python runs only when the main thread comes back to the interpreter. If the signal
# comes just before that thread blocks, or together with a needless wake-up, the thread blocks after all; and the parent
# that ends a pool competes with its workers for the lock of their queue, and keeps it. Of 1200 pools of four whose
# workers had a handler that only raises SystemExit, 9 hung for ever; with an agent in each worker about one in fifty.
# No thread learns that the handler is waiting but by `signal.set_wakeup_fd`, which belongs to event loops and which
# forked children share. Without a handler none of 2040 pools hung. Such a worker sends no last reports; after
# `pool.close(); pool.join()` it does.
#
# Where the main thread runs an event loop, a callback of the loop ends it, not the handler: an exception that a handler
# raises in the middle of a task is kept by that task, comes again out of each task that waits for it while
# `asyncio.run` cancels them, and asyncio then complains of tasks that were destroyed. A loop that a blocking call keeps
# from its callbacks is interrupted after all, a little later.
#
# A server may handle SIGTERM itself, take its handler back when it has shut down, and send itself the signal to end by
# it, as uvicorn does. That signal waits, blocked for the main thread, until the last reports are sent, whether or not
# our handler is the one that the server restores.
from __future__ import annotations

import asyncio
import atexit
import logging
import multiprocessing
import multiprocessing.util
import os
import signal
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final, Protocol

from reconverge.runtime.threads import WakeEvent, in_main_interpreter, start_thread

logger = logging.getLogger("reconverge")

LAST_WORDS_S: Final = 2.0
"""The most seconds that each agent may take to send its last reports when the process ends."""
LAST_WORDS_BESIDE_S: Final = 30.0
"""The most seconds that each agent of a subinterpreter may take to send its last reports at its end. Python aborts the
process if a thread of the subinterpreter is left."""
SIGTERM_GRACE_S: Final = 5.0
"""The most seconds that a process lives on after SIGTERM while its threads still work."""
LOOP_GRACE_S: Final = 0.5
"""The seconds that an event loop of the main thread has, after SIGTERM, to end before it is interrupted."""
SIGTERM_STATUS: Final = 128 + signal.SIGTERM
SENDS_IT_ITSELF: Final = "uvicorn.server"
"""The module of a server, uvicorn, that handles SIGTERM, and sends itself the signal again after its shutdown."""
SENDS_IT_IN: Final = "capture_signals"
"""The function of uvicorn in which the server sends itself SIGTERM."""


class Stoppable(Protocol):
    """The methods of an agent that this module calls."""

    def start_over_after_fork(self) -> None:
        """Forgets the allowances, counts and connections of the parent process; called in a forked child."""
        ...

    def stop_for_good(self, timeout_s: float) -> None:
        """Stops the agent because the process ends; it may send its last reports for at most `timeout_s` seconds."""
        ...


_agents: weakref.WeakSet[Stoppable] = weakref.WeakSet()
_hooked_pid = 0
_ending_pid = 0
"""The id of the process in which this module has handled a SIGTERM; 0 before."""
_asked_pid = 0
"""The id of the process whose event loop was asked to end and still runs; 0 if there is none."""
_held_back_pid = 0
"""The id of the process that will end by a SIGTERM, which is held back until its agents have sent their last
reports."""
_speaking_pid = 0
"""The id of the process whose agents are sending their last reports; 0 if none is."""


def register(agent: Stoppable, *, sigterm: bool) -> None:
    """Makes `agent` learn of forks, and lets it send its last reports when this process ends, except by `kill -9`.

    If `sigterm` is True and the application has no handler of SIGTERM, the signal ends the main thread as `sys.exit`
    would. In a daemon of `multiprocessing` SIGTERM still ends the process at once.
    """
    global _hooked_pid  # noqa: PLW0603  # fork hooks belong to the process, and so does this note of them
    if not _hooked_pid:
        # Threads that hold locks do not survive a fork, and connections must not.
        os.register_at_fork(after_in_child=_after_fork)
        atexit.register(stop_all)
        if not in_main_interpreter():
            # As executors do: before an isolated interpreter waits for its threads, which `atexit` comes too late for.
            threading._register_atexit(stop_all)  # type: ignore[attr-defined]  # noqa: SLF001  # see above
        # `multiprocessing` calls this in a child once it is known whether the child is a daemon.
        multiprocessing.util.register_after_fork(_leave_daemons_alone, lambda leave: leave())
    _agents.add(agent)
    if _hooked_pid != os.getpid():
        _hooked_pid = os.getpid()
        if multiprocessing.parent_process() is not None:
            # A child of `multiprocessing` ends by os._exit, which does not run atexit.
            multiprocessing.util.Finalize(None, stop_all, exitpriority=100)
    if not in_main_interpreter():
        return  # only the main interpreter handles signals
    if sigterm and not _is_daemon() and threading.current_thread() is threading.main_thread():
        handler = signal.getsignal(signal.SIGTERM)
        if handler is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _on_sigterm)
        elif callable(handler) and _raises_it_again(handler):
            signal.signal(signal.SIGTERM, _HeldBack(handler))


def living_agents() -> list[Stoppable]:
    """Returns all agents of this process that the program still refers to."""
    return list(_agents)


def stop_all() -> None:
    """Stops every agent of this process after its last reports."""
    global _speaking_pid  # noqa: PLW0603  # as above
    _speaking_pid = os.getpid()
    try:
        for agent in list(_agents):
            try:
                agent.stop_for_good(LAST_WORDS_S if in_main_interpreter() else LAST_WORDS_BESIDE_S)
            except Exception:
                logger.exception("reconverge: an agent could not be stopped; its last reports may be lost")
    finally:
        _speaking_pid = 0
        if _held_back_pid == os.getpid() and threading.current_thread() is threading.main_thread():
            if signal.getsignal(signal.SIGTERM) is _on_sigterm:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)  # all reports are sent
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # and the process ends by it, if it is pending


def _raises_it_again(handler: Callable[..., object]) -> bool:
    """Returns whether a handler of SIGTERM belongs to uvicorn, which sends itself the signal again after its shutdown.

    uvicorn sets its handler before it imports the application, and restores the former one before it sends the signal.
    The former handler is not this module's, so the process would end without the agents' last reports.
    """
    return any(kind.__module__ == SENDS_IT_ITSELF for kind in type(getattr(handler, "__self__", None)).__mro__)


def _is_sent_by_server(frame: FrameType | None) -> bool:
    """Returns whether uvicorn has sent this SIGTERM to its own process after a shutdown.

    `frame` is the frame that the signal has interrupted, which is then in the code of uvicorn.
    """
    return (
        frame is not None and frame.f_code.co_name == SENDS_IT_IN and frame.f_globals.get("__name__") == SENDS_IT_ITSELF
    )


class _HeldBack:
    """Wraps a server's handler of SIGTERM, to delay the signal that the server sends itself after its shutdown.

    The main thread blocks the signal until the agents have sent their last reports. Then the signal ends the process,
    as the server intends. A signal from another process still arrives, through any other thread.
    """

    def __init__(self, handler: Callable[[int, FrameType | None], object]) -> None:
        self._handler = handler

    def __call__(self, number: int, frame: FrameType | None) -> None:
        _hold_back()
        self._handler(number, frame)


def _hold_back() -> None:
    global _held_back_pid  # noqa: PLW0603  # a process ends once
    _held_back_pid = os.getpid()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def _is_daemon() -> bool:
    """Returns whether this process is a daemon of `multiprocessing`, such as a worker of a `Pool`.

    The parent ends a daemon by SIGTERM, and then waits for it without limit. A daemon with a handler in Python would
    now and then live on: the handler does not run if the signal comes just before the main thread blocks, or together
    with a needless wake-up.
    """
    return multiprocessing.current_process().daemon


def _leave_daemons_alone() -> None:
    if _is_daemon() and signal.getsignal(signal.SIGTERM) is _on_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _on_sigterm(_number: int, frame: FrameType | None) -> None:
    global _ending_pid, _asked_pid  # noqa: PLW0603  # a process ends once
    if _ending_pid != os.getpid():
        _ending_pid = os.getpid()
        # Not by `threading`, whose locks the main thread may hold that this interrupts.
        start_thread(_end_at_last, name="reconverge-end")
        if _is_sent_by_server(frame):
            # An exception here would come out of a loop whose main task has ended, and leave it half closed.
            _hold_back()
            signal.raise_signal(signal.SIGTERM)  # it is pending
        elif _speaking_pid != os.getpid():
            _end_main_thread()
    elif _asked_pid == os.getpid():
        _asked_pid = 0
        raise SystemExit(SIGTERM_STATUS)  # out of the call that keeps the loop
    # Any further signal would only interrupt the last reports, which do not take long.


def _end_main_thread() -> None:
    """Raises SystemExit on the main thread: the code that SIGTERM interrupted may hold locks that agents need."""
    global _asked_pid  # noqa: PLW0603  # as above
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        raise SystemExit(SIGTERM_STATUS) from None
    _asked_pid = os.getpid()
    loop.call_soon_threadsafe(_end_loop)


def _end_loop() -> None:
    global _asked_pid  # noqa: PLW0603  # as above
    _asked_pid = 0
    raise SystemExit(SIGTERM_STATUS)


def _end_at_last() -> None:
    """Stops the agents after their last reports; ends the process SIGTERM_GRACE_S seconds after SIGTERM in any case."""
    WakeEvent().wait(min(LOOP_GRACE_S, SIGTERM_GRACE_S))
    if _asked_pid == os.getpid():
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
    WakeEvent().wait(max(0.0, SIGTERM_GRACE_S - LOOP_GRACE_S))
    stop_all()
    os._exit(SIGTERM_STATUS)


def _after_fork() -> None:
    for agent in list(_agents):
        try:
            agent.start_over_after_fork()
        except Exception:  # the others would go on with the allowances and counts of the parent
            logger.exception("reconverge: an agent could not start over after a fork; make a new one in the child")


# `multiprocessing` starts a fresh interpreter as `python -c`, which looks for modules in the working directory first: a
# file `pickle.py` there would take the place of the standard library's. A parent that ends by a signal while it writes
# to such an interpreter leaves it with half a message, for which it prints a traceback.
VARIABLE: Final = "PYTHONSAFEPATH"


@contextmanager
def nothing_from_the_working_directory() -> Iterator[None]:
    """A context manager: interpreters started in its block do not import modules from their working directory."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before


@contextmanager
def started_before_the_end() -> Iterator[None]:
    """A context manager that delays a SIGTERM to this process until its block is over.

    A process that is started in the block does not inherit the delay: SIGTERM ends it at once.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[FrameType | None] = []
    handler = signal.signal(signal.SIGTERM, lambda _, frame: came.append(frame))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)
        if came:
            signal.raise_signal(signal.SIGTERM)
