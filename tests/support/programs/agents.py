"""Programs of the processes under test: `python -m tests.support.programs.agents NAME HUB` runs one of them.

A program prints what it admitted as soon as that is certain, and the other words that its function names; it waits for
a line where its test acts first.
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
    """Admits one request that is reported to the hub, and nine more that only the last report contains."""
    agent = Agent(hub, sync_interval=HOUR_S, exchange_timeout=5.0, sigterm=sigterm)
    login = agent.limit("login", NEVER_FULL)
    say(introduce(login) + admitted_of(login, 9))
    return login


def begin_without_hub(hub: str) -> RateLimiter:
    """Begins as `begin`, while no hub answers."""
    login = Agent(hub, sync_interval=0.02, exchange_timeout=0.3).limit("login", NEVER_FULL)
    say(admitted_of(login, 10))
    return login


def say(*words: object) -> None:
    """Prints a text at once."""
    print(*words, flush=True)  # noqa: T201  # the program talks to its test by printing


def wait_for_a_line() -> None:
    """Waits for a line from the test."""
    sys.stdin.readline()


# ---------------------------------------------------------------- ordinary ends


def comes_to_its_end(hub: str) -> None:
    """Ends as a program with nothing more to do."""
    begin(hub)


def exits(hub: str) -> NoReturn:
    begin(hub)
    sys.exit(3)


def fails(hub: str) -> NoReturn:
    begin(hub)
    raise LookupError("on purpose")


def drops_its_agent(hub: str) -> None:
    """Drops all references to the agent, which was not stopped."""
    begin(hub)
    gc.collect()


def leaves_its_loop_closed(hub: str) -> None:
    """Closes a loop in which the agent still exchanges, and ends."""

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
    """Closes its loop at the end, when newer Pythons start no more threads."""
    leaves_its_loop_closed(hub)

    def refuse(_run: Callable[[], None], *, name: str) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    for module in (reconverge.runtime.event_loop, reconverge.exchange.thread_runner):
        vars(module)["start_thread"] = refuse


def decides_at_the_very_end(hub: str) -> None:
    """Decides at the very end, when the interpreter starts no more threads.

    Its hub, whose URL has a host's name, was never connected.
    """
    login = Agent(hub.replace("127.0.0.1", "localhost"), exchange_timeout=5.0).limit("login", NEVER_FULL)
    atexit.register(lambda: say(admitted_of(login, 10)))


def has_a_line_and_sleeps(hub: str) -> None:
    """Prints the admissions within allowances, without an exchange, and those after the machine has slept."""
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
    """Runs as two processes with copies of one memory, unknown to Python.

    Each prints its admissions and its node's name. For both of them the wall clock goes forward, as it does when an
    image is restored.
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
    """Ends while the name of the hub is being looked up, and no answer ever comes."""
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
    """Ends after no hub has ever answered, or none does any more once a line has been read."""
    begin_without_hub(hub)
    wait_for_a_line()


# ---------------------------------------------------------------- settings that are published


def obeys(hub: str, cap: str | None = None) -> None:
    """Prints the settings in force whenever they change, and rejected ones; begins with the published ones."""
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
    """Waits in the main thread for any signal."""
    begin(hub)
    while True:
        signal.pause()


def rests_and_says_when_it_leaves(hub: str) -> None:
    """Waits, and ends with more to report than fits into one exchange."""
    login = begin(hub)
    wait_for_a_line()
    atexit.register(say, "leaving")
    say(sum(admitted_of(login, 1, f"key {number}") for number in range(300)))
    while True:
        signal.pause()


class Herald:
    """Announces that the last report has begun, and delays the others until SIGTERM has come."""

    def start_over_after_fork(self) -> None:
        """Does nothing."""

    def stop_for_good(self, timeout_s: float) -> None:
        say("leaving")
        eventually(lambda: reconverge.runtime.process._ending_pid, "SIGTERM", timeout_s * 10)


def ends_by_itself_and_says_when_it_leaves(hub: str) -> None:
    """Gets a SIGTERM while it is already ending."""
    begin(hub)
    herald = Herald()
    reconverge.runtime.process.register(herald, sigterm=True)
    atexit.register(lambda: herald)  # it exists as long as the process


def rests_with_a_handler_of_its_own(hub: str) -> None:
    """Waits with the application's own handler of SIGTERM."""
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
    """Waits with an agent that does not handle SIGTERM."""
    begin(hub, sigterm=False)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    while True:
        signal.pause()


def decides_on_another_thread(hub: str) -> None:
    """Makes an agent in the main thread, and decides on others, as a server with worker threads."""
    agent = Agent(hub, sync_interval=HOUR_S, exchange_timeout=5.0)
    login = agent.limit("login", NEVER_FULL)
    worker = threading.Thread(target=lambda: say(introduce(login) + admitted_of(login, 9)))
    worker.start()
    worker.join()
    while True:
        signal.pause()


def never_lets_go(hub: str) -> None:
    """Runs another thread, no daemon, which would keep the process alive for ever; the time to end is short here."""
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
    """Runs an asynchronous application."""

    async def serve() -> None:
        async with begin_in_a_loop(hub):
            await asyncio.Event().wait()

    asyncio.run(serve())


def is_told_to_end_in_a_task(hub: str) -> None:
    """Gets the signal while a task runs for which other tasks wait."""

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
    """Blocks the loop for an hour."""

    async def serve() -> None:
        async with begin_in_a_loop(hub):
            try:
                say("blocks")
                threading.Event().wait(HOUR_S)  # a mistake in the application, on purpose
            finally:
                say("unwound")

    asyncio.run(serve())


def admits_for_ever(hub: str) -> None:
    """Prints how many requests it has admitted, over and over."""
    login = Agent(hub, sync_interval=0.01).limit("login", NEVER_FULL)
    admitted = 0
    while True:
        admitted += admitted_of(login, 100)
        say(admitted)


def admits_twenty_an_hour(hub: str) -> None:
    """Makes twenty requests, prints how many were admitted, and waits until it is killed.

    A node that is new gets little at first beside nodes that were just busy, so in doubt it asks the hub.
    """
    agent = Agent(hub, sync_interval=0.05)
    login = agent.limit("login", "1000/hour")
    admitted = introduce(login) + sum(login.ask_blocking("ada").allowed for _ in range(19))
    exchanged = exchanges_of(agent)
    login.allow("another")  # so that there is an answer to print in any case
    eventually(lambda: exchanges_of(agent) >= exchanged + 2, "the report")
    say(admitted)
    wait_for_a_line()


# ---------------------------------------------------------------- mistakes


class NoRedis(MetaPathFinder):
    """Imitates an environment in which no module of Redis is installed."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname == "redis":
            raise ModuleNotFoundError("No module named 'redis'", name="redis")


def has_no_client(hub: str) -> None:
    """Runs without Redis's client, as far as this process can see."""
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
