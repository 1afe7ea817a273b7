"""Goal: no lock of the product that another thread holds at a fork is held in the child.

Method: the source is walked for locks that are made past `runtime/locks.py`; a thread holds each lock that has hung
before while this process forks, and the child, which a signal ends if it hangs, tells by its status that it went on.
"""

from __future__ import annotations

import ast
import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from reconverge import Agent
from reconverge.contracts.contracts import Contracts
from reconverge.contracts.store.memory_book import MemoryBook
from reconverge.integrations.config import load
from reconverge.runtime import locks
from reconverge.runtime.locks import known, new_future, new_lock
from reconverge.runtime.threads import Section
from reconverge.shedding import AdaptiveConcurrency, Stack
from reconverge.usage import Meter
from reconverge_sync.memory import MemoryHub
from tests.support.waiting import eventually, exit_code_of

ROOT: Final = Path(__file__).parents[2]
HUNG_S: Final = 10
"""A child that has not ended by then hangs."""
MODULES: Final = frozenset(("threading", "_thread", "queue", "multiprocessing", "concurrent.futures"))
THREADS_LOCKS: Final = (
    "Lock",
    "RLock",
    "Condition",
    "Event",
    "Semaphore",
    "BoundedSemaphore",
    "Barrier",
    "allocate_lock",
)
HAVE_LOCKS: Final = ("Future", "ThreadPoolExecutor", "Queue", "LifoQueue", "PriorityQueue", "SimpleQueue")
LOCKS: Final = frozenset((*THREADS_LOCKS, *HAVE_LOCKS))
REASON: Final = "# fork: "

Held = tuple[Any, Callable[[], object]]
"""A lock, and what a child does that needs it."""


class TestSource:
    """Walks the source."""

    @pytest.mark.slow
    def test_every_lock_is_made_so_that_it_survives_a_fork(self) -> None:
        """Or a comment in its line says why it need not."""
        found = [
            f"{path.relative_to(ROOT)}:{line}"
            for folder in ("agent", "sync")
            for path in sorted((ROOT / folder).rglob("*.py"))
            for line in unexplained(path.read_text())
        ]

        assert [] == found

    @pytest.mark.parametrize(
        "source",
        [
            "import threading\nthreading.Lock()",
            "import threading as t\nt.Condition()",
            "from threading import RLock as R\nR()",
            "from queue import Queue\nclass A:\n    def f(self): self.q = Queue(4)",
            "original('_thread', 'allocate_lock')",
        ],
    )
    def test_it_finds_one_however_it_is_imported(self, source: str) -> None:
        """The test above would pass for a walk that finds nothing."""
        assert 1 == len(unexplained(source))

    @pytest.mark.parametrize(
        "source", ["import asyncio\nasyncio.Event()", "import threading\nthreading.Lock()  # fork: no thread waits"]
    )
    def test_what_belongs_to_a_loop_or_is_explained_is_left_alone(self, source: str) -> None:
        """A loop does not live on in a child."""
        assert [] == unexplained(source)


def of_contracts() -> Held:
    """A customer is met."""
    plans = {"plans": {"a": {"limits": {"api": "10/min"}}}, "unknown": "a"}
    contracts = Contracts(Agent("memory://"), plans)
    return contracts._lock, lambda: contracts.hit("new")


def of_limits() -> Held:
    """A limit is declared."""
    agent = Agent("memory://")
    return agent._overrides.lock, lambda: agent.limit("y", "5/minute").allow("k")


def of_switches() -> Held:
    """A limit is switched."""
    limiter = Agent("memory://").limit("x", "5/minute")
    return limiter.control.enforcement.turning, lambda: limiter.switch("off")


def of_a_meter() -> Held:
    """Usage is counted, without a reporter that would start over."""
    meter = Meter()
    return meter._lock, lambda: meter.add("c", "d")


def of_addresses() -> Held:
    """An address is noted."""
    meter = Meter()
    return meter.addresses._lock, lambda: meter.add_request("c", [("d", 1)], address="192.0.2.1")


def of_a_book() -> Held:
    """Contracts are read."""
    book = MemoryBook()
    return book._lock, lambda: asyncio.run(book.read())


def of_a_hub() -> Held:
    """Totals are read."""
    hub = MemoryHub()
    return hub._lock, hub.sums


def of_a_cache() -> Held:
    """Django's cache sets what only this process keeps; the lock is that of all its threads."""
    django = pytest.importorskip("reconverge.integrations.django.cache")
    cache = django.ReconvergeCache("memory://", {})
    return cache._lock, lambda: cache.set("a", "text")


def of_slots() -> Held:
    """A request enters."""
    stack = Stack(AdaptiveConcurrency())
    return stack.layers[0].slots.lock, lambda: stack.enter("k", "GET")  # type: ignore[attr-defined]


def of_a_configuration() -> Held:
    """A file is read again."""
    configured = load(hub="memory://", limits={"x": "5/minute"})
    return configured._lock, configured.reload


def of_a_section() -> Held:
    """A section is entered."""
    section = Section()
    return section._lock, lambda: section.run(int)


def of_a_future() -> Held:
    """A future is waited for."""
    future = new_future()
    return future._condition, lambda: future.set_result(None)


PLACES: Final[list[Callable[[], Held]]] = [
    of_contracts,
    of_limits,
    of_switches,
    of_a_meter,
    of_addresses,
    of_a_book,
    of_a_hub,
    of_a_cache,
    of_slots,
    of_a_configuration,
    of_a_section,
    of_a_future,
]


class TestForks:
    """Forks this process."""

    @pytest.mark.parametrize("place", PLACES, ids=lambda each: each.__name__)
    def test_a_child_goes_on_though_another_thread_held_the_lock(self, place: Callable[[], Held]) -> None:
        """That thread is not there to let go of it."""
        lock, do = place()
        with held_by_another_thread(lock):
            assert 0 == exit_code_of(child_that(do))

    def test_the_thread_that_forks_still_holds_its_own(self) -> None:
        """A hook forks in the middle of a section, and leaves that in the child, too."""
        lock = new_lock()
        with lock:
            child = child_that(lock.release)

        assert 0 == exit_code_of(child)

    def test_a_whole_lock_is_taken_by_the_fork(self) -> None:
        """The child finds what it guards as it was before a change or after it, and not in between."""
        lock, halves, half = new_lock(whole=True), [0, 0], threading.Event()

        def change() -> None:
            with lock:
                halves[0] = 1
                half.set()
                eventually(lambda: locks._taken, "the fork that waits for this thread")
                halves[1] = 1

        thread = threading.Thread(target=change)
        thread.start()
        half.wait()
        child = os.fork()
        if not child:
            os._exit(sum(halves))
        thread.join()

        assert 2 == exit_code_of(child)

    def test_a_lock_is_forgotten_with_its_owner(self) -> None:
        """The record of locks grows with the locks that there are, and no further."""
        before = len(locks._known), len(locks._whole)
        for _ in range(10):
            new_lock(whole=True)

        assert before == (len(locks._known), len(locks._whole))

    def test_a_lock_of_green_threads_is_left_to_them(self) -> None:
        """They live on in the child, and let go of what they hold."""

        class GreenLock:
            """A lock of gevent."""

        lock, before = GreenLock(), len(locks._known)

        assert known(lock) is lock
        assert before == len(locks._known)


@contextmanager
def held_by_another_thread(lock: Any) -> Iterator[None]:
    """Another thread holds the lock within the block."""
    taken, done = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            taken.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait()
    try:
        yield
    finally:
        done.set()
        thread.join()


def child_that(does: Callable[[], object]) -> int:
    """Fork a child that does this and ends; with status 0 if it worked, and by a signal if it hangs."""
    child = os.fork()
    if not child:
        status = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(HUNG_S)
            does()
            status = 0
        finally:
            os._exit(status)
    return child


def unexplained(source: str) -> list[int]:
    """The lines in which a lock is made that is not the loop's, without a reason."""
    tree, lines = ast.parse(source), source.splitlines()
    names, modules = dict[str, str](), set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {each.asname or each.name for each in node.names if each.name in MODULES}
        elif isinstance(node, ast.ImportFrom) and node.module in MODULES:
            names |= {each.asname or each.name: each.name for each in node.names}
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and _makes_a_lock(node, names, modules)
        if not any(REASON in line for line in lines[node.lineno - 1 : node.end_lineno])
    ]


def _makes_a_lock(call: ast.Call, names: dict[str, str], modules: set[str]) -> bool:
    made = call.func
    if isinstance(made, ast.Subscript):  # Queue[int]()
        made = made.value
    by_name = any(isinstance(each, ast.Constant) and each.value in LOCKS for each in call.args)
    if isinstance(made, ast.Attribute):
        return by_name or (made.attr in LOCKS and ast.unparse(made.value) in modules)
    return by_name or (isinstance(made, ast.Name) and names.get(made.id) in LOCKS)
