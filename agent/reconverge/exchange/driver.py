"""Waits for the hub on behalf of an agent's syncers: sends their batches of reports, and returns the hub's answers."""

# Theory of operation.
#
# Three parts make the exchanges of an agent. A *syncer* decides when to exchange and what to report; it never waits.
# The *driver*, in this file, waits for the hub on behalf of all syncers; one exchange is made in `exchanges.py`. A
# *runner* is the thread or the task that the driver's coroutines run in (`thread_runner.py`, `task_runner.py`), and
# `ownership.py` sees to it that there is one at a time. A bridge between regions, which waits for two hubs, has a
# driver of its own: `regions/driver.py`.
#
# The first problem. Waking a thread costs more than a decision, and the first charge after each report calls for an
# exchange. As long as requests come, the loop therefore wakes up by itself whenever another exchange may begin
# (`Syncer.looks_ns`), and a decision wakes it only for an exchange that must begin earlier. A loop that finds nothing
# to do at the end of an interval sleeps until it has to report that the node lives, so that an idle process wakes up
# for nothing else. If the runner is a task, the application may close its loop at any time without notice, so each
# decision that needs an exchange wakes the task at once; from the loop's own thread that takes no system call.
#
# The second problem. A decision must do no input or output, and yet be able to call for an exchange ahead of time. The
# only way to wake an event loop from elsewhere is to write to its pipe, which is a system call in the middle of a
# decision: chaos tests counted up to 800 of them in 11,500 decisions. So a decision only sets a flag. A loop that waits
# for one of several shards, or has work between exchanges, checks the flag every CALL_S; a thread with nothing under
# way waits on a plain lock instead, because fifty checks a second cost an idle agent on a broker 1.1 % of a core
# instead of 0.5. A request that asks the hub waits anyway, and wakes the loop by its pipe.
#
# Each shard has exchanges of its own. If the loop waited for all due exchanges before it began others, one server that
# does not answer would delay the exchanges with all others, for a second at a time.

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from reconverge.clock import NEVER_NS, SECOND_NS, Clock, SystemClock
from reconverge.exchange.exchanges import Exchanges
from reconverge.exchange.follower import Follower, Parting
from reconverge.exchange.questions import Questions
from reconverge.exchange.syncer import Syncer
from reconverge.hub.port import Hub, Working
from reconverge.runtime.restoration import Restorations

logger = logging.getLogger("reconverge")

IDLE_S: Final = 3600.0
"""The longest sleep, in seconds, of the thread or task that makes the exchanges; a call of `wake` ends it."""
BUG_PAUSE_S: Final = 1.0
CALL_S: Final = 0.02
"""The seconds between two checks whether a decision has called `wake`, while the event loop waits for answers."""


class ExchangeDriver(Exchanges):
    """Makes all exchanges of one node with one hub; closes its connections when the runner (thread or task) ends."""

    def __init__(
        self,
        syncers: list[Syncer],
        *,
        hub: Hub | None,
        clock: Clock,
        timeout_s: float,
        hub_name: str,
        followers: Sequence[Follower] = (),
    ) -> None:
        super().__init__(syncers, hub=hub, clock=clock, timeout_s=timeout_s, hub_name=hub_name)
        self._followers = followers
        """Objects that read published data at the hub, beside the exchanges; the list may grow while the driver
        works."""
        self._grace_ns = round((2 * timeout_s + BUG_PAUSE_S) * SECOND_NS)
        """For how long an exchange, or the pause after a bug, may delay the next check for due work, in nanoseconds."""
        self._working: Working | None = hub if isinstance(hub, Working) else None
        """The hub, if it has tasks of its own to run between exchanges; else None."""
        self.questions = Questions()
        """Questions of the application to the hub, such as reading a key, which the runner asks in its loop."""
        self._called = False
        """Whether `wake` was called, so that the round of exchanges in progress must check for other due work."""
        self._nudge: Callable[[], object] | None = None
        """A function that wakes the round of exchanges in progress at once, by a write to its event loop's pipe."""
        self._asked_ns: list[int] = []
        """For each shard, the moment since which requests wait for the hub, in nanoseconds, as of the last check."""
        self.restarts = 0
        """How often the runner had to start the exchange loop again after a failure."""
        self.watch_for_restorations = Restorations() if isinstance(clock, SystemClock) else None
        """Detects that this process was restored from an image of its memory; None in tests with a clock of their
        own."""
        self.restorations = 0
        """The number of times that the node took a new name because this process may be a copy of another process."""
        self._reconnects = False
        """Whether to open the hub's connections anew, because a copy of this process may use the present ones."""
        self._look_by_ns: int | None = None
        """The moment by which the driver must check for due work again, by the machine's monotonic clock; None if none
        is set."""

    @property
    def overdue_s(self) -> float:
        """Returns the seconds by which the runner, a thread or task, is late with its check for due work; else 0.0."""
        owner, look_by_ns = self.owner, self._look_by_ns
        if owner is None or look_by_ns is None or not owner.listening:
            return 0.0
        return max(0.0, (SystemClock.monotonic_ns() - look_by_ns) / SECOND_NS)

    @property
    def _is_relied_on(self) -> bool:
        owner = self.owner
        return owner is not None and owner.end_is_noticed

    def runner_is_gone(self) -> None:
        """Records that the thread or task that exchanges has disappeared, so that the next decision starts another."""
        self._look_by_ns = None
        for syncer in self._syncers:
            syncer.part()

    def due_in_s(self) -> float:
        """Returns the seconds until the next exchange or read of published data should begin; 0.0 if one is due."""
        return self._due_in_s(self._syncers, self._followers)

    @property
    def at_work(self) -> bool:
        """Returns whether the hub has tasks to run between exchanges, for which the event loop must go on running."""
        return self._in_use and self._working is not None and self._working.at_work

    async def rest(self, woken: Callable[[], bool]) -> None:
        """Lets the event loop run until the next exchange is due or `wake` is called.

        Returns at once if `woken()` is True: then `wake` was called before.
        """
        self._note_calls()
        if not woken():
            await self._until_called(asyncio.Event(), asyncio.get_running_loop().time() + self.due_in_s())

    async def carry_out(self, going_on: Callable[[], bool] = lambda: True) -> None:
        """Makes every exchange that is due, those of different shards side by side. Raises only CancelledError.

        While a shard has yet to answer, exchanges of other shards begin as they become due, so a slow shard delays no
        other. Once `going_on()` returns False, no further exchange begins.
        """
        try:
            if self._is_relied_on:
                for syncer in self._syncers:
                    syncer.stay_awake()
            self._look_for_restoration()
            if self._reconnects:
                self._reconnects = False
                await self._let_go()
            if len(self._syncers) > 1 or not all(each.brief for each in self._due_followers()):
                await self._carry_out_side_by_side(going_on)
            else:
                if self._are_due(self._syncers):
                    await self._exchange(self._syncers[0])
                for follower in self._due_followers():
                    await self._follow(follower)
                if self.questions.waiting:
                    await self._answer_questions()
        except Exception as error:  # noqa: BLE001  # nothing here should fail; if it does, the loop must outlive it
            self._note_bug(error)
            await asyncio.sleep(BUG_PAUSE_S)

    def carry_out_blocking(self) -> bool:
        """Makes the due exchange without an event loop, and blocks this thread meanwhile. Raises nothing.

        Returns False if the caller must call `carry_out` instead, because an event loop is needed: for several shards,
        to connect to the hub, or for a follower or a question. Otherwise returns True.
        """
        blocking = self._blocking
        try:
            self._look_for_restoration()
            if blocking is None or self._reconnects or self.questions.waiting or self._due_followers():
                return False
            syncer = self._syncers[0]
            if self._is_relied_on:
                syncer.stay_awake()
            if self._are_due(self._syncers):
                if not blocking.ready_to_block():
                    return False
                self._exchange_blocking(syncer, blocking)
        except Exception as error:  # noqa: BLE001  # as in `carry_out`
            self._note_bug(error)
            self._pauses.wait(BUG_PAUSE_S)
        return True

    def wake(self) -> None:
        """Makes the round of exchanges in progress check soon for other due work. Never waits, and never fails.

        If a request has begun to wait for the hub since the last call, `wake` writes to the event loop's pipe, which
        wakes the loop at once. Otherwise `wake` does no output: it sets a flag that the loop checks every CALL_S
        seconds.
        """
        self._called = True
        nudge, asked = self._nudge, self._note_asks()
        if nudge is not None and asked:
            # The loop may be closing, or its pipe broken; such a loop cannot be woken.
            with contextlib.suppress(RuntimeError, OSError):
                nudge()

    def _note_calls(self) -> None:
        self._note_asks()
        self._called = False

    def _note_asks(self) -> bool:
        """Returns whether, at any shard, a request has begun to wait for the hub since this method was last called."""
        before, now = self._asked_ns, [syncer.asked_ns for syncer in self._syncers]
        self._asked_ns = now
        return before != now and any(
            ns < NEVER_NS and (number >= len(before) or ns != before[number]) for number, ns in enumerate(now)
        )

    def take_over(self) -> None:
        """Prepares the driver for another thread or task, which makes the exchanges from now on.

        If the former one still waited for an answer to a batch, that batch counts as failed.
        """
        for syncer in self._syncers:
            syncer.abandon(now_ns=self._clock.monotonic_ns())
        for follower in self._followers:
            follower.start_over()

    async def leave(self) -> None:
        """Sends the node's last reports, and gives its allowances back. Sends no more to a shard that has failed."""
        await asyncio.gather(*(self._leave(syncer) for syncer in self._syncers))

    async def close(self) -> None:
        """Stops the exchanges, and closes the hub's connections."""
        self._look_by_ns = None
        self.questions.refuse()
        for syncer in self._syncers:
            syncer.part()
        for follower in self._followers:
            if isinstance(follower, Parting):
                await self._part_with(follower)
        await self._let_go()

    async def _part_with(self, follower: Parting) -> None:
        try:
            await follower.part(self._timeout_s)
        except Exception as error:  # noqa: BLE001  # the hub's connections must be let go of all the same
            self._note_bug(error)

    async def _answer_questions(self) -> None:
        await self.questions.answer(self._hub_in_use(), self._timeout_s)

    async def _let_go(self) -> None:
        hub, in_use, self._in_use = self._hub, self._in_use, False
        if hub is not None and in_use:
            try:
                await asyncio.wait_for(hub.close(), self._timeout_s)
            except Exception:
                logger.debug("reconverge: closing the hub failed", exc_info=True)

    def _look_for_restoration(self) -> None:
        sign = "" if self.watch_for_restorations is None else self.watch_for_restorations.sign()
        if sign:
            self._become_another(sign)

    def _become_another(self, sign: str) -> None:
        """Gives the node a new name at every shard, because this process may be a copy of another that still runs.

        `sign` is a phrase for the log that describes how the driver has noticed this.
        """
        self.restorations += 1
        self._reconnects = True
        for syncer in self._syncers:
            syncer.give_up_allowances(self._clock.monotonic_ns())
        if self.restorations == 1:
            logger.warning(
                "reconverge: this process may be a copy, restored from an image of its memory, because %s. Its node"
                " goes on under a new name, and without allowances until the hub answers. Further cases are not logged,"
                " but counted as `restorations` in stats()",
                sign,
            )

    async def _carry_out_side_by_side(self, going_on: Callable[[], bool]) -> None:
        loop = asyncio.get_running_loop()
        nudged = asyncio.Event()
        under_way: dict[Syncer | Questions | Follower, asyncio.Task[None]] = {}
        try:
            while True:
                self._look_for_restoration()
                self._note_calls()
                for done in [each for each, task in under_way.items() if task.done()]:
                    del under_way[done]
                waiting = [syncer for syncer in self._syncers if syncer not in under_way]
                for syncer in self._are_due(waiting) if going_on() else ():
                    task = under_way[syncer] = loop.create_task(self._exchange_one_of_many(syncer))
                    task.add_done_callback(lambda _: nudged.set())
                if self.questions.waiting and self.questions not in under_way and going_on():
                    task = under_way[self.questions] = loop.create_task(self._answer_questions())
                    task.add_done_callback(lambda _: nudged.set())
                self._follow_side_by_side(under_way, nudged, going_on=going_on())
                if not under_way:
                    return
                waiting = [syncer for syncer in waiting if syncer not in under_way]
                followers = [each for each in self._followers if each not in under_way]
                due_s = self._due_in_s(waiting, followers) if going_on() else IDLE_S
                await self._until_called(nudged, loop.time() + due_s)
                nudged.clear()
        except asyncio.CancelledError:
            for task in under_way.values():
                task.cancel()
            await asyncio.gather(*under_way.values(), return_exceptions=True)
            raise

    async def _until_called(self, nudged: asyncio.Event, until_s: float) -> None:
        """Waits until a task sets `nudged`, the time `until_s` comes, or `wake` is called.

        The loop checks every CALL_S whether `wake` was called: a decision calls it, and a decision does no output, so
        it cannot wake the loop through the loop's pipe.
        """
        loop = asyncio.get_running_loop()
        alarm: asyncio.Handle

        def look() -> None:
            nonlocal alarm
            now_s = loop.time()
            # Looked at instead of signalled: a write to the loop's pipe by the thread that decides would
            # be a system call.
            if self._called or now_s >= until_s:
                nudged.set()
            else:
                alarm = loop.call_at(min(until_s, now_s + CALL_S), look)

        alarm = loop.call_soon(look)
        self._nudge = partial(loop.call_soon_threadsafe, nudged.set)
        try:
            await nudged.wait()
        finally:
            self._nudge = None
            alarm.cancel()

    async def _exchange_one_of_many(self, syncer: Syncer) -> None:
        try:
            await self._exchange(syncer)
        except Exception as error:  # noqa: BLE001  # as above; the other shards go on meanwhile
            self._note_bug(error)
            await asyncio.sleep(BUG_PAUSE_S)

    def _follow_side_by_side(
        self,
        under_way: dict[Syncer | Questions | Follower, asyncio.Task[None]],
        nudged: asyncio.Event,
        *,
        going_on: bool,
    ) -> None:
        """Starts a task for each due follower that has none; if `going_on` is False, cancels all such tasks."""
        if not going_on:
            for follower in self._followers:
                if follower in under_way:
                    under_way[follower].cancel()
            return
        for follower in self._due_followers():
            if follower not in under_way:
                task = under_way[follower] = asyncio.get_running_loop().create_task(self._follow(follower))
                task.add_done_callback(lambda _: nudged.set())

    async def _follow(self, follower: Follower) -> None:
        try:
            cut_off = self._syncers[0].failing
            await follower.follow(self._hub_in_use(), cut_off=cut_off, timeout_s=self._timeout_s)
        except Exception as error:  # noqa: BLE001  # likewise
            self._note_bug(error)
            await asyncio.sleep(BUG_PAUSE_S)

    def _due_followers(self) -> list[Follower]:
        now_ns = self._clock.monotonic_ns()
        return [follower for follower in self._followers if follower.due_ns() <= now_ns]

    def _are_due(self, syncers: Iterable[Syncer]) -> list[Syncer]:
        now_ns = self._clock.monotonic_ns()
        return [syncer for syncer in syncers if syncer.due_ns(now_ns) <= now_ns]

    def _due_in_s(self, waiting: Sequence[Syncer], followers: Iterable[Follower]) -> float:
        """Returns the seconds until a syncer or a follower is due, and stores when this loop checks again.

        A decision that needs an exchange before that check wakes the loop.
        """
        now_ns = self._clock.monotonic_ns()
        relied_on = self._is_relied_on
        until = [syncer.looks_ns(now_ns) if relied_on else syncer.due_ns(now_ns) for syncer in waiting]
        due_ns = min(until, default=now_ns + self._grace_ns)
        for follower in followers:
            due_ns = min(due_ns, follower.due_ns())
        due_ns = min(max(now_ns, due_ns), now_ns + round(IDLE_S * SECOND_NS))
        for syncer in self._syncers:
            syncer.attend(due_ns + self._grace_ns)
        for syncer in waiting if relied_on else ():
            syncer.sleep_until(due_ns)
        self._look_by_ns = SystemClock.monotonic_ns() + max(0, due_ns - now_ns) + self._grace_ns
        return (due_ns - now_ns) / SECOND_NS

    async def _leave(self, syncer: Syncer) -> None:
        try:
            syncer.leave(self._clock.monotonic_ns())
            while not syncer.left:
                if not await self._exchange(syncer):
                    return
                await asyncio.sleep(0)  # an exchange that had nothing to report has not suspended this task
        except Exception as error:  # noqa: BLE001  # as above: the other shards' last words must still be said
            self._note_bug(error)

    def note_restart(self, error: Exception) -> None:
        """Counts a failure that has ended the whole exchange loop; logs the first such failure.

        The caller restarts the loop.
        """
        self.restarts += 1
        self._count_bug(error)
        if self.restarts == 1:
            logger.error("reconverge: the exchange loop failed, and is restarted; report this bug", exc_info=error)

    def pause(self, pause_s: float) -> None:
        """Records that the runner pauses for `pause_s` seconds, so that no decision starts another runner meanwhile."""
        until_ns = self._clock.monotonic_ns() + round(pause_s * SECOND_NS)
        for syncer in self._syncers:
            syncer.attend(until_ns)
        self._look_by_ns = SystemClock.monotonic_ns() + round(pause_s * SECOND_NS) + self._grace_ns
