"""Goal: the lock of a limit in Python is never left behind, and one that was is taken over, however many wait for it.

Method: the lock by itself, with threads, and with exceptions before each instruction of a thread that waits for it.
"""

from __future__ import annotations

import sys
import threading
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

from reconverge.kernel import engine
from reconverge.kernel import lock as _lock
from reconverge.kernel.lock import KernelFields, Lock
from tests.kernel.table.test_tiers import lone_tiers
from tests.support.opcodes import Interrupted, begin_tracing, trace_opcodes
from tests.support.waiting import eventually

WAITERS = 3


class NoKernel(KernelFields):
    """Nothing is wanted of it after a lock."""

    after_unlock = False


def lock_of_its_own() -> Lock:
    """A lock of no limit."""
    return Lock(NoKernel())


def interrupt_wait(lock: Lock, number: int) -> bool:
    """Wait for the lock once, and raise before that instruction of it; returns whether there is one."""
    left = number

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if frame.f_code is not _lock.WAIT:
            return None
        trace_opcodes(frame, trace)
        if event == "opcode":
            left -= 1
            if left < 0:
                sys.settrace(None)
                raise Interrupted
        return trace

    said = iter((True, True))
    lock.locked = lambda: next(said, False)  # held when it is looked at, and then free
    begin_tracing(trace)
    try:
        lock.run(int)
    except Interrupted:
        pass
    finally:
        sys.settrace(None)
    return left < 0


def test_a_thread_that_is_interrupted_while_it_waits_leaves_the_lock_free() -> None:
    """Before any instruction: a handler may decide and raise while its thread waits for another."""
    lock = lock_of_its_own()
    inner = lock._inner

    number = 0
    while interrupt_wait(lock, number):
        assert not inner.locked(), number
        number += 1

    assert number > 20


@pytest.mark.parametrize("owner", ["another thread", "no thread"])
def test_a_lock_that_was_left_behind_is_taken_over_though_many_wait(owner: str) -> None:
    """A thread that waits will let go of nothing, so it is no reason for the others to wait for it."""
    lock, done = lock_of_its_own(), list[int]()
    lock._inner.acquire()
    lock.owner = 1 if owner == "another thread" else 0
    waiters = [threading.Thread(target=lock.run, args=(done.append, 1), daemon=True) for _ in range(WAITERS)]
    for waiter in waiters:
        waiter.start()

    eventually(lambda: len(done) == WAITERS, "all of them had their turn")
    assert not lock.locked()


def test_a_lock_is_taken_over_beside_objects_that_lie_about_their_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """All objects are gone through for greenlets, and a lazy object of Django's loads something when it is asked."""
    asked: list[str] = []

    class Lazy:
        """Not set up yet."""

        def __getattribute__(self, name: str) -> Any:
            asked.append(name)
            raise RuntimeError(name)

    lazy = Lazy()
    monkeypatch.setitem(sys.modules, "greenlet", SimpleNamespace(greenlet=type("greenlet", (), {})))
    lock = lock_of_its_own()
    lock._inner.acquire()

    lock.run(int)

    assert type(lazy) is Lazy
    assert [] == asked


def test_a_lock_that_is_held_for_long_is_not_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frame that is at work under it will let go of it, however long that takes."""
    monkeypatch.setattr(_lock, "NAPS_MAX", 2)
    lock, begun, go_on = lock_of_its_own(), threading.Event(), threading.Event()
    order = list[str]()

    def work() -> None:
        begun.set()
        go_on.wait()
        order.append("first")

    holder = threading.Thread(target=lock.run, args=(work,))
    waiter = threading.Thread(target=lock.run, args=(order.append, "second"))
    looks = list[bool]()
    is_abandoned = Lock._is_abandoned

    def look(self: Lock) -> bool:
        looks.append(is_abandoned(self))
        return looks[-1]

    monkeypatch.setattr(Lock, "_is_abandoned", look)
    holder.start()
    begun.wait()
    waiter.start()
    eventually(lambda: len(looks) > 2, "several looks")
    go_on.set()
    holder.join()
    waiter.join()

    assert ["first", "second"] == order
    assert {False} == set(looks)


def test_a_thread_whose_held_lock_is_gone_waits_for_others_as_before() -> None:
    """A lock that a forked child replaces while it is held counts no more: the next one is waited for."""
    kernel = lone_tiers("fixed-window", "5/hour")[0].kernel
    gone, contended = engine.Lock(kernel), engine.Lock(kernel)
    held, answered = threading.Event(), threading.Event()

    def hold() -> bool:
        held.set()
        return answered.wait(0.2)  # what waits for the lock does not answer meanwhile

    holder = threading.Thread(target=contended.run, args=(hold,))
    gone.acquire()
    del gone
    holder.start()
    held.wait()
    told = "ran"
    try:
        contended.run(int)
    except engine.Reentry as error:
        told = str(error)
    answered.set()
    holder.join()

    assert "ran" == told


@pytest.mark.skipif(not engine.COMPILED, reason="the lock in Python keeps no count of a thread's locks")
def test_only_the_thread_that_holds_a_lock_lets_go_of_it() -> None:
    """The count of locks that the other thread holds would be wrong for ever."""
    lock = engine.Lock(lone_tiers("fixed-window", "5/hour")[0].kernel)
    thread = threading.Thread(target=lock.acquire)
    thread.start()
    thread.join()

    with pytest.raises(RuntimeError, match="this thread does not hold"):
        lock.release()

    assert lock.locked()
