"""Starts, wakes, replaces and stops the thread or task in which one agent exchanges with its hub.

At any time at most one such runner exchanges: a thread (`ThreadRunner`) or a task of a running event loop
(`TaskRunner`). A decision that has something to report wakes the runner, or starts a thread if there is none.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import os
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from random import Random
from secrets import token_hex
from typing import Final, TypeVar

from reconverge.agent.assembly import Parts
from reconverge.agent.hub_check import RequiredHub, until_answered
from reconverge.agent.notice import AgentInUse, callers_place, log_forked, log_made_anew, log_one_of_several
from reconverge.clock import Clock, ManualClock, Seconds
from reconverge.errors import EventletPatched, HubUnavailable, WrongMoment
from reconverge.exchange.driver import ExchangeDriver
from reconverge.exchange.follower import Follower
from reconverge.exchange.ownership import Runner
from reconverge.exchange.syncer import Syncer
from reconverge.exchange.task_runner import TaskRunner
from reconverge.exchange.thread_runner import ThreadRunner
from reconverge.hub.port import Hub
from reconverge.hub.registry import MEMORY
from reconverge.runtime.siblings import is_starting, one_of_several
from reconverge.runtime.threads import in_main_interpreter
from reconverge.settings import WAIT_MAX, checked_seconds

logger = logging.getLogger("reconverge")

AnyRunner = TypeVar("AnyRunner", ThreadRunner, TaskRunner)
T = TypeVar("T")
ANSWERS: Final = 2
"""The longest wait for an answer, in exchange timeouts: more than 1, as an exchange may be in progress."""


class Lifecycle:
    """The exchanges of one agent, and the thread or task that makes them.

    Args:
        parts: the hub and the kernel.
        clock: the source of time.
        timeout_s: seconds that one exchange may take.
        required: whether the agent must have its hub's answer before it begins.
        register: called before a runner starts, to register the agent for forks and for the end of the process.
    """

    def __init__(
        self,
        parts: Parts,
        *,
        clock: Clock,
        timeout_s: float,
        required: RequiredHub,
        register: Callable[[], None],
    ) -> None:
        self.hub = parts.hub
        self.hub_name = parts.hub_name
        self._kernel = parts.kernel
        self._clock = clock
        self._timeout_s = timeout_s
        self.required = required
        self._register = register
        self.followers: list[Follower] = []
        """Objects that read published data at the hub; they stay when the exchanges begin anew."""
        self._refusal = ""
        """The reason why no thread can exchange in this process, once it was logged; empty before."""
        self.runner: ThreadRunner | TaskRunner | None = None
        self.ended = False
        """Whether the process ends; decisions then start no exchanges any more."""
        self._in_use = None if "://" not in parts.hub_name else AgentInUse(parts.hub_name, parts.kernel.namespace)
        """Warns of a second agent of this process at the same hub. None for a hub that is an object, as tests make
        several agents of one, and for an agent of a `with` block."""
        self._restarted = False
        """Whether it was logged that a request came after a stop, as one does each time if each request stops it."""
        self._serves = not isinstance(clock, ManualClock)
        """False for an agent of a test or a simulation, which may well have several in one process."""
        self._made_at = callers_place(inspect.currentframe()) if self.hub_name == f"{MEMORY}://" else None
        """The file and line of the program that have made an agent of memory://; None for other agents. Its limits may
        be declared elsewhere, as by a framework that makes the middleware."""
        if self._kernel.alone and self._serves:
            self._look_for_others()
        self.begin()

    def begin(self) -> None:
        """Makes the agent a new node, with a name that the hub does not know."""
        now_ns = self._clock.monotonic_ns()
        self.runner = None
        self._stopped = False
        """Whether the caller has stopped the exchanges, and nothing has begun them again."""
        self.syncers = [
            Syncer(self._kernel, shard=shard.index, random=Random(), new_name=_new_name, now_ns=now_ns)
            for shard in self._kernel.shards
            if not shard.alone
        ]
        self.exchanges = ExchangeDriver(
            self.syncers,
            hub=self.hub,
            clock=self._clock,
            timeout_s=self._timeout_s,
            hub_name=self.hub_name,
            followers=self.followers,
        )
        if not self._kernel.alone:
            self._kernel.wake = self.wake

    def in_a_block(self) -> None:
        """Records that a `with` block holds the agent and will stop it; a second agent causes no warning then."""
        if self._in_use is not None:
            self._in_use.ends()
            self._in_use = None

    def has_declared(self, name: str) -> None:
        """Notes that the agent has a new limit; warns of one that is made anew in each call."""
        alone = self._kernel.alone and self._serves
        if alone and self._in_use is not None and self._made_at is not None:
            log_made_anew(self._made_at, name)

    def _look_for_others(self) -> None:
        """Notes whether this process is one of several alike, where each counts alone; logged when it decides."""
        which = one_of_several()
        if which is not None or is_starting():
            self._kernel.put_off(lambda: log_one_of_several(which or one_of_several(), self.hub_name))

    def has_forked(self) -> None:
        """Notes that this is a forked child, in which an agent without a hub counts alone; logged when it decides."""
        parent = os.getppid()
        if self._kernel.alone:
            self._kernel.put_off(lambda: log_forked(self.hub_name) if os.getppid() == parent else None)

    def start(self) -> None:
        """Starts the exchanges on a thread of their own, unless they run already."""
        if not self._kernel.alone and not self.ended and self.listening is None:
            self.succeed(ThreadRunner)

    def stop(self, timeout_s: float) -> None:
        """Stops the exchanges after a last report, and waits at most `timeout_s` seconds for that."""
        self.exchanges.stops += 1
        self._stopped = not self._kernel.alone
        owner = self.exchanges.owner
        if self.runner is None and owner is None:
            return
        alive = self.alive
        if not alive and (owner is None or not owner.left):
            alive = [self._last_words_for_closed_loop()]
        for runner in (*alive, self.runner):
            if runner is not None:
                runner.request_stop()
        for runner in alive:
            runner.join(timeout_s)
        if self._in_use is not None:
            self._in_use.ends()

    def hand_over_to_task(self) -> None:
        """Moves the exchanges from their thread to a task of the running event loop."""
        listening = self.listening
        if isinstance(listening, TaskRunner):
            problem = "another running event loop; make one agent for each loop"
            if listening.is_here:
                problem = (
                    "a task of this event loop; write `async with agent` once, where the application starts, and not"
                    " in each request"
                )
            said = f"this agent already exchanges with the hub in {problem}"
            raise WrongMoment(said)
        self.exchanges.stops += 1
        for runner in self.alive:
            runner.request_stop()
        self.succeed(TaskRunner)

    async def stop_task(self, runner: TaskRunner, timeout_s: float) -> None:
        """Stops the task `runner` after a last report, in the running event loop."""
        self._stopped = True
        await runner.stop(timeout_s)
        if not runner.left:  # its task had been cancelled, together with the one that leaves here
            await self.succeed(TaskRunner).stop(timeout_s)
        if self._in_use is not None:
            self._in_use.ends()

    def look_for_answers(self, timeout: Seconds) -> Iterator[float]:
        """Checks the hub as `Agent.check` does, and yields, instead of sleeping, the seconds to sleep each time."""
        timeout_s = checked_seconds("timeout", timeout, 0.0, WAIT_MAX)
        self.required.checks()
        self.start()
        yield from until_answered(self.exchanges, self.syncers, hub_name=self.hub_name, timeout_s=timeout_s)

    @property
    def running(self) -> bool:
        """Returns whether a thread or task makes the exchanges, or is about to."""
        return self.listening is not None

    @property
    def listening(self) -> ThreadRunner | TaskRunner | None:
        """Returns the thread or task that exchanges, or is about to; None if the next decision has to start one."""
        runner = self.runner
        if runner is None or not runner.listening:
            # Of several that were started at the same moment, another one may have got to exchange.
            owner = self.exchanges.owner
            if not isinstance(owner, ThreadRunner | TaskRunner) or not owner.listening:
                return None
            self.runner = runner = owner
        return runner

    @property
    def alive(self) -> list[Runner]:
        """Returns the threads or tasks that have not ended: the one that exchanges, and one that waits for its end."""
        runners = dict.fromkeys([self.exchanges.owner, self.runner])
        return [runner for runner in runners if runner is not None and runner.alive]

    def succeed(self, kind: Callable[..., AnyRunner]) -> AnyRunner:
        """Starts a runner of class `kind`, which begins to exchange when the present runner has ended. Returns it."""
        # Stored before it is started: an error in between leaves a runner that never begins, and is soon replaced.
        self.runner = runner = kind(self.exchanges)
        self._stopped = False
        self._register()
        if self._in_use is not None:
            self._in_use.begins()
        runner.start()
        return runner

    def ask(self, question: Callable[[Hub], Awaitable[T]]) -> Future[T]:
        """Calls `question` with the hub, in the event loop of the exchanges, which it starts if needed.

        Returns a future of the result. Raises HubUnavailable if too many questions wait, or the process ends.
        """
        if self.ended:
            raise HubUnavailable(
                "stopped",
                "the process is ending, so the agent asks the hub no more; ask before the process ends",
                applied=False,
            )
        future = self.exchanges.questions.ask(question)
        self.wake()
        return future

    async def answer(self, question: Callable[[Hub], Awaitable[T]], *, undone: str, advice: str = "try again") -> T:
        """Asks the hub as `ask` does, and waits for the answer. Raises HubUnavailable, also if none comes in time.

        `undone` is the beginning of the error's message, and `advice` is its end.
        """
        timeout_s = ANSWERS * self._timeout_s
        try:
            return await asyncio.wait_for(asyncio.wrap_future(self.ask(question)), timeout_s)
        except TimeoutError:
            raise HubUnavailable("timeout", f"{undone} within {timeout_s:g} s; {advice}") from None

    def wake(self) -> None:
        """Wakes the thread or task that exchanges, because a key has something to report; starts one if needed.

        Called in the middle of decisions, also in signal handlers and finalizers, so it never waits.
        """
        runner = self.listening
        if runner is not None:
            runner.wake()
        elif not self.ended:
            self.required.begins_unchecked()
            if self._stopped and not self._restarted:
                self._restarted = True
                logger.warning(
                    "reconverge: this agent was stopped, and a request that came after that starts its exchanges with"
                    " %s again, as a new node; stop the agent after the last request",
                    self.hub_name,
                )
            try:
                self.start()  # a decision does not wait for the hub, whether it is required or not
            except RuntimeError as error:  # no thread can be started now: a later decision will try again
                if not self._refusal and (isinstance(error, EventletPatched) or not in_main_interpreter()):
                    self._refusal = str(error)  # no thread will ever exchange in this process
                    logger.error(  # noqa: TRY400  # the message has all
                        "reconverge: this agent exchanges nothing with its hub: %s", error
                    )

    def _last_words_for_closed_loop(self) -> ThreadRunner:
        """Starts a thread that sends the last report, as the event loop of the exchanges was closed before that.

        If no thread can be started, sends it on the calling thread. Returns the thread's runner.
        """
        with contextlib.suppress(RuntimeError):
            return self.succeed(ThreadRunner)
        runner = ThreadRunner(self.exchanges)  # the interpreter is ending, and no thread can be started any more
        runner.request_stop()
        runner.run()
        return runner


def _new_name() -> str:
    return token_hex(8)
