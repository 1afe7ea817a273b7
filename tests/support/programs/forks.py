"""Processes that fork: `python -m tests.support.programs.forks NAME HUB` runs the function of that name.

The parent decides before and after, so that a thread or a task of it exchanges while it forks. Each process that has
decided prints its role, its node's name, the number of its admissions and the number of failed exchanges.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable
from multiprocessing.synchronize import Event
from pathlib import Path
from urllib.parse import urlsplit

from reconverge import Agent, Limit, RateLimiter
from reconverge.hub.report import Answer, Batch, Totals
from reconverge.limiter.waiting.waiters import waiting_at
from reconverge_sync.embedded.hub import directory_of
from reconverge_sync.memory import MemoryHub
from tests.support.agents import HOUR_S, NEVER_FULL, admitted_of, exchange_threads, heard, node_of
from tests.support.programs.agents import say, wait_for_a_line
from tests.support.waiting import eventually, eventually_in_loop

CHILDREN = 4
_agents: dict[str, Agent] = {}


def login_of(hub: str) -> RateLimiter:
    """Returns the limiter of this process, which a fork inherits and a new process makes."""
    if hub not in _agents:
        _agents[hub] = Agent(hub, sync_interval=HOUR_S, min_sync_interval=0.0, exchange_timeout=5.0)
    return _agents[hub].limit("login", NEVER_FULL)


def admit(hub: str, who: str) -> None:
    """Admits one request that is reported at once, and nine more that only the last report contains."""
    login = login_of(hub)
    admitted = login.allow(who)

    def answered() -> bool:  # unlike `heard` it asks for no exchange, which would report the other nine
        cell = login.control.table.cells.get(who)
        return cell is not None and cell.heard

    eventually(answered, f"the hub's answer for {who}")
    assert 10 == admitted + admitted_of(login, 9, who)
    introduce_yourself(hub, who)


def introduce_yourself(hub: str, who: str) -> None:
    """Prints the role, the name and the figures of this process."""
    stats = _agents[hub].stats()
    say(who, node_of(_agents[hub]), stats.limits["login"].admitted, sum(stats.exchanges[0].failures.values()))


def forks_a_child_that_decides(hub: str) -> None:
    """Forks a child that uses the inherited agent, and ends like any program."""
    _decides_around(hub, lambda: admit(hub, "child"))


def forks_a_child_that_ends(hub: str) -> None:
    """Forks a child that does not use the agent; its end drops all that it inherited."""
    _decides_around(hub, lambda: None)


def _decides_around(hub: str, work: Callable[[], None]) -> None:
    """Decides before and after a child has done its work."""
    admit(hub, "parent")
    wait_for_a_line()
    child = os.fork()
    if child == 0:
        work()
        sys.exit()
    os.waitpid(child, 0)
    admit(hub, "again")
    wait_for_a_line()  # while the test counts the connections


def forks_with_a_careless_hub(hub: str) -> None:
    """Forks a child that drops the parent's connection as soon as it needs one of its own."""
    _agents[hub] = Agent(CarelessHub(hub), sync_interval=HOUR_S, min_sync_interval=0.0, exchange_timeout=5.0)
    forks_a_child_that_decides(hub)


class CarelessHub:
    """A hub that writes on its connection with every exchange, and drops the connection of another process."""

    def __init__(self, url: str) -> None:
        self._hub = MemoryHub()
        self._port = urlsplit(url).port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._pid = 0
        self.shards = 1

    async def exchange(self, batch: Batch) -> Answer:
        if self._pid != os.getpid():
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
            self._pid = os.getpid()
            gc.collect()
        assert self._streams is not None
        reader, writer = self._streams
        writer.write(b"PING\r\n")
        assert b"+PONG\r\n" == await reader.readline()
        return await self._hub.exchange(batch)

    async def totals(self) -> dict[str, Totals]:
        return await self._hub.totals()

    async def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
        self._streams = None


def forks_while_others_decide(hub: str) -> None:
    """Forks a child from the main thread while another thread may hold any lock."""
    login = login_of(hub)
    ended = threading.Event()

    def decide() -> None:
        while not ended.is_set():
            login.allow("parent")

    thread = threading.Thread(target=decide)
    thread.start()
    for _ in range(20):
        child = os.fork()
        if child == 0:
            login.allow("child")
            _agents[hub].stop()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert 0 == status
    ended.set()
    thread.join()
    introduce_yourself(hub, "parent")


def imports_while_it_exchanges(hub: str) -> None:
    """Prints the modules that are imported by the first exchange, and by the last."""
    login = login_of(hub)
    before = set(sys.modules)
    login.allow("parent")
    eventually(lambda: heard(login, "parent"), "the hub's answer")
    _agents[hub].stop()
    say(sorted(set(sys.modules) - before))


def forks_while_it_joins_a_server(hub: str) -> None:
    """Forks a child after the first decision has begun to start an embedded server."""
    login = login_of(hub)
    login.allow("parent")
    eventually(exchange_threads, "the thread that joins")
    eventually(lambda: Path(directory_of(urlsplit(hub).netloc), "users.lock").exists(), "the joining")
    child = os.fork()
    if child == 0:
        admit(hub, "child")
        sys.exit()
    _, status = os.waitpid(child, 0)
    assert 0 == status
    admit(hub, "again")
    wait_for_a_line()


def forks_in_its_loop(hub: str) -> None:
    """Forks in an application whose event loop exchanges, and which gives work to a process of its own."""

    async def serve() -> None:
        login = login_of(hub)
        async with _agents[hub]:
            admitted = admitted_of(login, 1, "parent")
            await eventually_in_loop(lambda: heard(login, "parent"), "the first answer")
            assert 10 == admitted + admitted_of(login, 9, "parent")
            introduce_yourself(hub, "parent")
            await asyncio.to_thread(wait_for_a_line)
            child = multiprocessing.get_context("fork").Process(target=admit, args=(hub, "child"))
            child.start()
            await asyncio.to_thread(child.join)
            admitted = admitted_of(login, 1, "again")
            await eventually_in_loop(lambda: heard(login, "again"), "an answer after the fork")
            assert 10 == admitted + admitted_of(login, 9, "again")
            introduce_yourself(hub, "again")
            await asyncio.to_thread(wait_for_a_line)

    asyncio.run(serve())


def forks_while_others_wait(hub: str) -> None:
    """Forks while three threads wait; in the child one place is free, as it has counted nothing."""
    _agents[hub] = Agent(hub)
    limiter = _agents[hub].limit("login", Limit(1, 3600, algorithm="leaky-bucket"))
    limiter.allow("ada")
    threads = [threading.Thread(target=limiter.wait_blocking, args=("ada",), daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    eventually(lambda: 3 == waiting_at(limiter.control.table).waiters("ada"), "threads that wait")
    child = os.fork()
    if child == 0:
        say(
            "child",
            waiting_at(limiter.control.table).waiters("ada"),
            limiter.wait_blocking("ada", timeout=60.0).allowed,
        )
        os._exit(0)
    os.waitpid(child, 0)
    say("parent", waiting_at(limiter.control.table).waiters("ada"))


def multiplies(hub: str, method: str) -> None:
    """Starts children of `multiprocessing`, which end without the code of ordinary ends."""
    admit(hub, "parent")
    context = multiprocessing.get_context("fork") if method == "fork" else multiprocessing.get_context("spawn")
    children = [context.Process(target=admit, args=(hub, f"child-{number}")) for number in range(CHILDREN)]
    for child in children:
        child.start()
    for child in children:
        child.join()
        assert 0 == child.exitcode


def rests_deaf(hub: str, ready: Event) -> None:
    """Admits, and then runs no handler: the main thread is blocked, and SIGTERM comes to another thread."""
    admit(hub, "child")
    say("handled" if callable(signal.getsignal(signal.SIGTERM)) else "left alone")
    # The agent's own thread has started, and takes signals.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    threading.Timer(0.5, ready.set).start()  # once this thread waits: before that, a handler could still run in it
    threading.Event().wait()


def terminates(hub: str, method: str) -> None:
    """Ends a daemon of `multiprocessing` by SIGTERM, as pools do, and waits for it without limit."""
    admit(hub, "parent")
    context = multiprocessing.get_context("fork") if method == "fork" else multiprocessing.get_context("spawn")
    ready = context.Event()
    child = context.Process(target=rests_deaf, args=(hub, ready), daemon=True)
    child.start()
    ready.wait()
    child.terminate()
    child.join()
    say(child.exitcode)


def tells_whether_it_handles_sigterm(hub: str) -> None:
    """Prints, after the first decision, whether it handles SIGTERM."""
    login_of(hub).allow("child")
    say("handled" if callable(signal.getsignal(signal.SIGTERM)) else "left alone")


def has_a_child_that_is_no_daemon(hub: str, method: str) -> None:
    """Has a child that is no daemon, and which it does not end."""
    admit(hub, "parent")
    context = multiprocessing.get_context("fork") if method == "fork" else multiprocessing.get_context("spawn")
    child = context.Process(target=tells_whether_it_handles_sigterm, args=(hub,))
    child.start()
    child.join()


def admit_somewhere(hub: str, number: int) -> int:
    """Returns how many of ten requests are admitted, in any worker of a pool."""
    return admitted_of(login_of(hub), 10, f"key {number}")


def closes_a_pool(hub: str, method: str) -> None:
    """Closes a pool: the queue ends the workers, and the parent waits for them."""
    context = multiprocessing.get_context("fork") if method == "fork" else multiprocessing.get_context("spawn")
    with context.Pool(CHILDREN) as pool:
        admitted = pool.starmap(admit_somewhere, [(hub, number) for number in range(3 * CHILDREN)], chunksize=1)
        pool.close()
        pool.join()
    say(sum(admitted))


if __name__ == "__main__":
    name, *arguments = sys.argv[1:]
    globals()[name](*arguments)
