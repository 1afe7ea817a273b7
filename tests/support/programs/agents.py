"""Programs of the processes under test: `python -m tests.support.programs.agents NAME HUB` runs one of them.

A program prints what it admitted as soon as that is certain, and other words as its function says; it waits for a line
where its test has something to do first.
"""

from __future__ import annotations

import asyncio
import atexit
import ctypes
import gc
import os
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from importlib.abc import MetaPathFinder
from types import FrameType
from typing import NoReturn

import reconverge.exchange.thread_runner
import reconverge.runtime.event_loop
import reconverge.runtime.process
from reconverge import Agent, RateLimiter, ReconvergeError
from reconverge.runtime.restoration import JUMP_NS, Restorations
from tests.support.agents import HOUR_S, NEVER_FULL, admitted_of, exchanges_of, introduce
from tests.support.servers import POLL_S
from tests.support.waiting import eventually


def begin(hub: str, *, sigterm: bool = True) -> RateLimiter:
    """Admit one request that the hub knows of, and nine more that only the last words can tell it about."""
    agent = Agent(hub, sync_interval=HOUR_S, exchange_timeout=5.0, sigterm=sigterm)
    login = agent.limit("login", NEVER_FULL)
    say(introduce(login) + admitted_of(login, 9))
    return login


def begin_without_hub(hub: str) -> RateLimiter:
    """Begins as `begin`, where no hub answers."""
    login = Agent(hub, sync_interval=0.02, exchange_timeout=0.3).limit("login", NEVER_FULL)
    say(admitted_of(login, 10))
    return login


def say(*words: object) -> None:
    """Print at once."""
    print(*words, flush=True)  # noqa: T201  # how a program speaks to its test


def wait_for_a_line() -> None:
    """Until the test has done its part."""
    sys.stdin.readline()


# ---------------------------------------------------------------- ordinary ends


def comes_to_its_end(hub: str) -> None:
    """The main program has nothing more to do."""
    begin(hub)


def exits(hub: str) -> NoReturn:
    begin(hub)
    sys.exit(3)


def fails(hub: str) -> NoReturn:
    begin(hub)
    raise LookupError("on purpose")


def drops_its_agent(hub: str) -> None:
    """Nobody knows the agent any more, and nobody has stopped it."""
    begin(hub)
    gc.collect()


def leaves_its_loop_closed(hub: str) -> None:
    """A loop that nobody left, and then the end."""

    async def serve() -> None:
        agent = Agent(hub, sync_interval=HOUR_S, exchange_timeout=5.0)
        await agent.__aenter__()
        login = agent.limit("login", NEVER_FULL)
        admitted = admitted_of(login, 1)
        while login.usage("ada").staleness == float("inf"):  # noqa: ASYNC110  # the answer comes through this loop
            await asyncio.sleep(0.005)
        say(admitted + admitted_of(login, 9))

    asyncio.run(serve())


def leaves_its_loop_closed_where_no_thread_can_be_had(hub: str) -> None:
    """Newer Pythons start no threads any more when they come to their end."""
    leaves_its_loop_closed(hub)

    def refuse(_run: Callable[[], None], *, name: str) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    for module in (reconverge.runtime.event_loop, reconverge.exchange.thread_runner):
        vars(module)["start_thread"] = refuse


def decides_at_the_very_end(hub: str) -> None:
    """When the interpreter lends no more threads, and the hub, which is given by name, was never connected to."""
    login = Agent(hub.replace("127.0.0.1", "localhost"), exchange_timeout=5.0).limit("login", NEVER_FULL)
    atexit.register(lambda: say(admitted_of(login, 10)))


def has_a_line_and_sleeps(hub: str) -> None:
    """Say what lines admit, and what they admit after the machine has slept; on a line itself nothing is exchanged."""
    agent = Agent(hub, exchange_timeout=0.2, stop_timeout=0.0, policy="strict", lease_ttl=600.0, sync_interval=0.05)
    login = agent.limit("login", "1000/day")
    asks: dict[str, Callable[[str], bool]] = {
        "ada": login.allow,
        "eve": lambda key: login.hit(key).allowed,
        "bob": lambda key: login.allow_many([key])[0],
    }
    for key, ask in asks.items():
        eventually(partial(ask, key), "an allowance")
    say(sum(ask(key) for key, ask in asks.items() for _ in range(10)))
    wait_for_a_line()
    say(sum(ask(key) for key, ask in asks.items() for _ in range(10)))


def is_copied(hub: str) -> None:
    """Two processes go on with one memory, unknown to Python; each says what it admitted, and as which node.

    For both of them the wall clock goes forward, as it does when an image is restored.
    """
    agent = Agent(hub, policy="strict", sync_interval=0.02, max_silence=0)
    exchanges, login = agent._lifecycle.exchanges, agent.limit("login", "1000/day")
    wall_ns = 0
    exchanges.watch_for_restorations = Restorations(wall_ns=lambda: wall_ns, since_start_ns=int, boot_id=str)
    agent._kernel.wake = lambda: None  # a thread would not be copied, so the program exchanges by itself

    async def exchange() -> None:
        await exchanges.carry_out()
        await exchanges.close()

    def told() -> bool:
        asyncio.run(exchange())
        return not agent.stats().exchanges[0].pending and agent.ready

    eventually(lambda: login.allow("ada") or (told() and False), "an allowance")
    eventually(told, "all that is said before")
    say(1, agent.stats().exchanges[0].node)
    copy = ctypes.PyDLL(None).fork()
    wall_ns = 2 * JUMP_NS
    if copy:
        os.waitpid(copy, 0)
    on_the_allowance = admitted_of(login, 1000)
    eventually(told, "all that was admitted on the allowance")
    after = admitted_of(login, 3)
    eventually(told, "all that was admitted afterwards")
    stats = agent.stats()
    say(on_the_allowance, after, stats.exchanges[0].node, stats.restorations)
    if not copy:
        os._exit(0)


def ends_without_name_server(_hub: str) -> None:
    """The name of the hub is being looked up, and no answer ever comes."""
    asked = threading.Event()

    def look_up(*_question: object, **_how: object) -> NoReturn:
        asked.set()
        threading.Event().wait()
        raise AssertionError

    socket.getaddrinfo = look_up
    agent = Agent("redis://nowhere.example:6379/0", exchange_timeout=0.2)
    admitted = admitted_of(agent.limit("login", NEVER_FULL), 10)
    asked.wait()
    eventually(lambda: agent.stats().exchanges[0].failures, "a failed exchange")
    say(admitted)


def ends_without_hub(hub: str) -> None:
    """Nobody has ever answered, or nobody does any more once a line has been read."""
    begin_without_hub(hub)
    wait_for_a_line()


# ---------------------------------------------------------------- settings that are published


def obeys(hub: str, cap: str | None = None) -> None:
    """Says what is in force whenever that is something else, and what is rejected; begins with what is published."""
    agent = Agent(hub, namespace="shop", sync_interval=0.02, exchange_timeout=5.0)
    login = agent.limit("login", "100/day", cap=cap)
    before = "100 on"
    rejected = 0
    agent.start()
    while True:
        with agent._overrides.lock:  # so that it is not seen halfway
            state = f"{login.limit.quota} {login.switched}"
        stats = agent.stats().orders
        assert stats is not None
        if state != before:
            say(state)
        if sum(stats.rejected.values()) > rejected:
            say(*stats.rejected)
        before, rejected = state, sum(stats.rejected.values())
        threading.Event().wait(POLL_S)


# ---------------------------------------------------------------- signals


def rests(hub: str) -> None:
    """The main thread waits for whatever comes."""
    begin(hub)
    while True:
        signal.pause()


def rests_and_says_when_it_leaves(hub: str) -> None:
    """Then it has more to say than fits into one exchange."""
    login = begin(hub)
    wait_for_a_line()
    atexit.register(say, "leaving")
    say(sum(admitted_of(login, 1, f"key {number}") for number in range(300)))
    while True:
        signal.pause()


class Herald:
    """Says that the last words have begun, and keeps the others waiting until SIGTERM has been heard."""

    def start_over_after_fork(self) -> None:
        """Does nothing."""

    def stop_for_good(self, timeout_s: float) -> None:
        say("leaving")
        eventually(lambda: reconverge.runtime.process._ending_pid, "SIGTERM", timeout_s * 10)


def ends_by_itself_and_says_when_it_leaves(hub: str) -> None:
    """Is told to end while it ends already."""
    begin(hub)
    herald = Herald()
    reconverge.runtime.process.register(herald, sigterm=True)
    atexit.register(lambda: herald)  # it is known as long as the process


def rests_with_a_handler_of_its_own(hub: str) -> None:
    """The application has decided what SIGTERM does."""
    ended = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        ended.set()

    signal.signal(signal.SIGTERM, end)
    begin(hub)
    assert signal.getsignal(signal.SIGTERM) is end
    while not ended.is_set():
        signal.pause()
    say("mine")


def rests_without_a_handler(hub: str) -> None:
    """The agent has been told to leave SIGTERM alone."""
    begin(hub, sigterm=False)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    while True:
        signal.pause()


def decides_on_another_thread(hub: str) -> None:
    """The agent is made by the main thread and used by others, as in a server with worker threads."""
    agent = Agent(hub, sync_interval=HOUR_S, exchange_timeout=5.0)
    login = agent.limit("login", NEVER_FULL)
    worker = threading.Thread(target=lambda: say(introduce(login) + admitted_of(login, 9)))
    worker.start()
    worker.join()
    while True:
        signal.pause()


def never_lets_go(hub: str) -> None:
    """Another thread, which is no daemon, would keep the process alive for ever; the grace is short for once."""
    reconverge.runtime.process.SIGTERM_GRACE_S = 0.2  # type: ignore[misc]
    threading.Thread(target=threading.Event().wait).start()
    rests(hub)


@asynccontextmanager
async def begin_in_a_loop(hub: str) -> AsyncIterator[None]:
    """Begins as `begin`, with an agent that exchanges in the running loop."""
    agent = Agent(hub, sync_interval=HOUR_S, exchange_timeout=5.0)
    async with agent:
        login = agent.limit("login", NEVER_FULL)
        admitted = admitted_of(login, 1)
        while login.usage("ada").staleness == float("inf"):  # noqa: ASYNC110  # the answer comes through this loop
            await asyncio.sleep(0.005)
        say(admitted + admitted_of(login, 9))
        yield


def serves(hub: str) -> None:
    """An asynchronous application."""

    async def serve() -> None:
        async with begin_in_a_loop(hub):
            await asyncio.Event().wait()

    asyncio.run(serve())


def is_told_to_end_in_a_task(hub: str) -> None:
    """The signal comes while a task runs for which other tasks wait."""

    async def told() -> None:
        signal.raise_signal(signal.SIGTERM)
        await asyncio.Event().wait()

    async def waits() -> None:
        await asyncio.gather(told(), asyncio.Event().wait())

    async def serve() -> None:
        async with begin_in_a_loop(hub):
            await asyncio.gather(waits(), asyncio.Event().wait())

    asyncio.run(serve())


def keeps_its_loop(hub: str) -> None:
    """A call that blocks keeps the loop from all else for an hour."""

    async def serve() -> None:
        async with begin_in_a_loop(hub):
            try:
                say("blocks")
                threading.Event().wait(HOUR_S)  # as an application should not
            finally:
                say("unwound")

    asyncio.run(serve())


def admits_for_ever(hub: str) -> None:
    """Says how many it has admitted, over and over."""
    login = Agent(hub, sync_interval=0.01).limit("login", NEVER_FULL)
    admitted = 0
    while True:
        admitted += admitted_of(login, 100)
        say(admitted)


def admits_twenty_an_hour(hub: str) -> None:
    """Is asked twenty times, says how often it has admitted, and goes on until it is killed.

    A node that is new gets little at first beside those that were busy a moment ago, so in doubt it asks the hub.
    """
    agent = Agent(hub, sync_interval=0.05)
    login = agent.limit("login", "1000/hour")
    admitted = introduce(login) + sum(login.ask_blocking("ada").allowed for _ in range(19))
    exchanged = exchanges_of(agent)
    login.allow("another")  # so that there is something to say in any case
    eventually(lambda: exchanges_of(agent) >= exchanged + 2, "the report")
    say(admitted)
    wait_for_a_line()


# ---------------------------------------------------------------- mistakes


class NoRedis(MetaPathFinder):
    """Finds nothing, and lets nobody else find it either."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname == "redis":
            raise ModuleNotFoundError("No module named 'redis'", name="redis")


def has_no_client(hub: str) -> None:
    """Redis's client is not installed, as far as this process can see."""
    for name in [name for name in sys.modules if name.partition(".")[0] in ("redis", "reconverge_sync")]:
        del sys.modules[name]
    sys.meta_path.insert(0, NoRedis())
    try:
        Agent(hub)
    except ReconvergeError as error:
        say(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    name, *arguments = sys.argv[1:]
    globals()[name](*arguments)
