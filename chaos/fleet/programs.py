"""The kinds of processes in which an agent can live."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from chaos.fleet.contestant import Contestant, Ours
from chaos.fleet.plan import GEVENT, THREAD
from chaos.fleet.slots import slot_over_forks, take_slots, tasks_that_take_slots
from chaos.fleet.storm import Storm
from chaos.fleet.workers.gevent_worker import in_gevent_worker
from chaos.rivals.further import FirstLoop
from reconverge.clock import MILLISECOND_NS, SECOND_NS
from reconverge.limiter.asking import WITHIN_S

if TYPE_CHECKING:
    from chaos.fleet.node import Node
    from chaos.fleet.plan import Request
    from reconverge.kernel import Verdict

THREADS: Final = 64
SWITCH_S: Final = 1e-5
"""The seconds between two switches of threads: five hundred times as often as usual, so that threads collide."""
WORKERS: Final = 8
CYCLE_NS: Final = 80 * MILLISECOND_NS
"""The time, in nanoseconds, after which a loop is closed and replaced by another."""
NAP_NS: Final = 50 * MILLISECOND_NS
VOLLEY: Final = 100
"""The number of decisions that a thread makes in a row."""
PAUSE_S: Final = 0.01
"""The pause between two such rows, in seconds: without it the threads would leave no processor time to others."""


def in_thread(node: Node) -> None:
    """Runs an ordinary program: the exchanges have a thread of their own."""
    node.prepare()
    node.await_readiness()
    node.say_ready()
    node.listen()
    node.await_go()
    take_slots(node)
    _make_requests(node, node.due_requests())
    node.wait_for_the_end()


def in_loop(node: Node) -> None:
    """Runs an asynchronous program: the exchanges are tasks of its loop. It may have many agents."""
    asyncio.run(_serve(node))


async def _serve(node: Node) -> None:
    async with _started(node, [each for team in node.teams.values() for each in team]):
        for number, request in enumerate(node.due_requests()):
            await _wait_in_loop(node, request.moment_ns)
            if node.ended:
                break
            node.ask(request, number=number)


def in_loop_that_asks(node: Node) -> None:
    """Runs an asynchronous program whose requests all ask the hub in doubt, many of them at once.

    Beside each request, an application without a limiter asks its loop to go on after as long as an ask may take.
    """
    asyncio.run(_serve_and_ask(node))


async def _serve_and_ask(node: Node) -> None:
    async with _started(node, node.contestants), asyncio.TaskGroup() as group:
        for request in node.due_requests():
            await _wait_in_loop(node, request.moment_ns)
            group.create_task(_go_on_beside(node))
            for contestant in node.contestants:
                group.create_task(node.ask_and_wait(contestant, request))


@asynccontextmanager
async def _started(node: Node, contestants: Sequence[Contestant]) -> AsyncIterator[None]:
    """A block that begins when the contestants live in this loop and the node is to go, and ends with the node."""
    asyncio.get_running_loop().set_exception_handler(node.note_in_loop)
    async with AsyncExitStack() as stack:
        for contestant in contestants:
            await _begin_in_loop(contestant, stack)
        node.prepare()
        while not node.ready:  # noqa: ASYNC110  # the awaited event comes through this loop
            await asyncio.sleep(0.02)
        node.say_ready()
        node.listen()
        while not node.is_started:  # noqa: ASYNC110  # the order comes on another thread
            await asyncio.sleep(0.005)
        at_work = tasks_that_take_slots(node, node.contestants)
        yield
        await asyncio.gather(*at_work)
        while not node.ended:
            await _wait_in_loop(node, time.monotonic_ns() - node.start_ns + NAP_NS)


async def _go_on_beside(node: Node) -> None:
    """Imitates an application that has no limiter, and waits for as long."""
    t_ns = time.monotonic_ns()
    await asyncio.sleep(WITHIN_S)
    node.recorder.write("beside", t=t_ns, ns=time.monotonic_ns() - t_ns - round(WITHIN_S * SECOND_NS))


async def _begin_in_loop(contestant: Contestant, stack: AsyncExitStack) -> None:
    if isinstance(contestant, Ours):
        await stack.enter_async_context(contestant.agent)
    elif isinstance(contestant, FirstLoop):
        task = asyncio.create_task(contestant.live(), name=contestant.name)
        stack.callback(task.cancel)


async def _wait_in_loop(node: Node, moment_ns: int) -> None:
    while (nap_s := node.nap_s(moment_ns)) > 0 and not node.ended:
        until_ns = time.monotonic_ns() + int(nap_s * SECOND_NS)
        await asyncio.sleep(nap_s)
        node.slept(until_ns)


def in_many_loops(node: Node) -> None:
    """Runs a program whose event loop is closed and replaced by another of another kind, again and again.

    Meanwhile a second agent lives in a loop of its own on another thread.
    """
    others: list[Contestant] = [
        Ours(one.name, node.plan, node.recorder, node.clock) for one in node.contestants if isinstance(one, Ours)
    ]
    runs = _loop_kinds()
    for run in runs:  # each kind of loop takes its lasting resources the first time
        run(_some_time(node, [], node.contestants))
    node.say_ready()
    node.listen()
    before = _possessions()
    node.await_go()
    requests = node.due_requests()
    aside = threading.Thread(target=lambda: asyncio.run(_some_time(node, requests[1::2], others)), name="aside")
    aside.start()
    cycles, rest = 0, requests[::2]
    while rest and not node.ended:
        end_ns = rest[0].moment_ns + CYCLE_NS
        now = [request for request in rest if request.moment_ns < end_ns]
        rest = rest[len(now) :]
        runs[cycles % len(runs)](_some_time(node, now, node.contestants))
        cycles += 1
    aside.join()
    node.more_facts = {"cycles": cycles, "kinds": len(runs), "before": before, "after": _possessions()}
    node.wait_for_the_end()


async def _some_time(node: Node, requests: list[Request], contestants: list[Contestant]) -> None:
    """Lets one loop live for a while."""
    asyncio.get_running_loop().set_exception_handler(node.note_in_loop)
    async with AsyncExitStack() as stack:
        for contestant in contestants:
            await _begin_in_loop(contestant, stack)
        at_work = tasks_that_take_slots(node, contestants)
        for request in requests:
            while (nap_s := node.nap_s(request.moment_ns)) > 0:  # noqa: ASYNC110  # the moment comes by itself
                await asyncio.sleep(nap_s)
            for contestant in contestants:
                node.ask_one(contestant, request)
        await asyncio.sleep(0)
        for task in at_work:
            task.cancel()
        if at_work:
            await asyncio.wait(at_work)  # the loop calls its handler with exceptions that escape from a task


def _loop_kinds() -> list[Callable[[Any], None]]:
    kinds: list[Callable[[Any], None]] = [asyncio.run]
    try:
        import uvloop  # noqa: PLC0415  # it may not be installed
    except ImportError:
        return kinds
    return [*kinds, uvloop.run]


def _possessions() -> dict[str, int]:
    """Returns the numbers of the resources that a process can leak."""
    return {"descriptors": len(os.listdir("/proc/self/fd")), "threads": threading.active_count()}  # noqa: PTH208


def in_many_threads(node: Node) -> None:
    """Runs a program that decides on many threads at once, as fast as it can."""
    node.prepare()
    node.await_readiness()
    node.say_ready()
    node.listen()
    node.await_go()
    take_slots(node)
    sys.setswitchinterval(SWITCH_S)
    key = node.plan.requests[0].key
    threads = [threading.Thread(target=_hammer, args=(node, key), name=f"hammer-{number}") for number in range(THREADS)]
    for thread in threads:
        thread.start()
    node.wait_for_the_end()
    for thread in threads:
        thread.join()


def _hammer(node: Node, key: str) -> None:
    end_ns = node.start_ns + node.plan.load_ns
    while time.monotonic_ns() < end_ns and not node.ended:
        for contestant in node.contestants:
            _hit_hard(node, contestant, key)
        time.sleep(PAUSE_S)


def _hit_hard(node: Node, contestant: Contestant, key: str) -> None:
    """Decides many times in a row; the admitted cost is recorded in one line for each window."""
    admitted: dict[int, Verdict] = {}
    costs: Counter[int] = Counter()
    touched = ""
    t_ns, wall_ns = time.monotonic_ns(), time.time_ns()
    for _ in range(VOLLEY):
        node.watch.begin()
        verdict = contestant.decide(key, 1)
        touched = node.watch.end() or touched
        if verdict.allowed:
            admitted[verdict.epoch] = verdict
            costs[verdict.epoch] += 1
    for epoch, verdict in admitted.items():
        contestant.count(costs[epoch])
        node.recorder.decided(
            contestant.name,
            verdict,
            key=key,
            cost=costs[epoch],
            t_ns=t_ns,
            took_ns=0,
            wall_ns=wall_ns,
            touched=touched,
        )


def preforked(node: Node) -> None:
    """Runs a gunicorn that has loaded its application, and used it, before it forks its workers."""
    from chaos.fleet.workers.prefork import serve  # noqa: PLC0415  # gunicorn is not needed elsewhere

    node.prepare()
    node.await_readiness()
    node.start_ns = time.monotonic_ns()
    for request in node.plan.requests[:10]:
        node.ask(request)
    node.say_ready()
    node.listen()
    node.await_go()
    requests = node.due_requests()

    def work(worker: int) -> None:
        node.look(at_once=True)
        take_slots(node)
        _make_requests(node, requests[worker % WORKERS :: WORKERS])
        node.wait_for_the_end()

    def watch_for_the_end() -> None:
        node.wait_for_the_end()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch_for_the_end, name="end", daemon=True).start()
    with slot_over_forks(node):
        serve(work, workers=WORKERS)


def in_storm(node: Node) -> None:
    """Runs a program whose main thread decides under a storm of signals."""
    node.prepare()
    node.await_readiness()
    node.say_ready()
    node.listen()
    node.await_go()
    take_slots(node)
    Storm(node, node.contestants[0]).live()
    node.wait_for_the_end()


def _make_requests(node: Node, requests: list[Request]) -> None:
    for request in requests:
        if not node.wait_until(request.moment_ns):
            return
        node.ask(request)


PROGRAMS: Final[dict[str, Callable[[Node], None]]] = {
    THREAD: in_thread,
    "loop": in_loop,
    "asking": in_loop_that_asks,
    "loops": in_many_loops,
    "threads": in_many_threads,
    "prefork": preforked,
    "storm": in_storm,
    GEVENT: in_gevent_worker,
}
