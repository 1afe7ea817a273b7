"""Has one node tell and hear hints, over a channel that belongs to the loop in which it exchanges."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator
from secrets import token_bytes
from typing import Final

from reconverge.clock import SECOND_NS, Clock
from reconverge.errors import HubUnavailable
from reconverge.hint_channel import HintChannel, open_channel
from reconverge.hints import SENDER_BYTES, Hints, HintsStats
from reconverge.hubs import HubSettings, redacted
from reconverge.kernel import Kernel
from reconverge.report import Batch

logger = logging.getLogger("reconverge")

VARIABLE: Final = "RECONVERGE_HINTS"
BUG: Final = "bug"
QUIET_NS: Final = 60 * SECOND_NS
"""A channel that comes and goes is mentioned so often at most; every outage is counted."""


class Hinting:
    """Drives `Hints`. Whatever goes wrong here costs a hint, and nothing else."""

    def __init__(self, channel: HintChannel, kernel: Kernel, clock: Clock, *, name: str) -> None:
        self._channel = channel
        self._clock = clock
        self._name = name
        self._hints = Hints(kernel, sender=token_bytes(SENDER_BYTES))
        self._loop: asyncio.AbstractEventLoop | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._connected = False
        self._failures: Counter[str] = Counter()
        self._quiet_until_ns: int | None = None

    def begin(self) -> None:
        """Be connected, in the running loop, from now on."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._alarm, self._connected = loop, None, False
        with self._surprises():
            self._channel.open(self._hear, self._note)

    def become_another(self) -> None:
        """Sign with another name: a copy of this process that has the same one would not hear what this one tells."""
        self._hints.sender = token_bytes(SENDER_BYTES)

    def answered(self, batch: Batch) -> None:
        """The answer to that batch was taken in: tell what others should know."""
        with self._surprises():
            self._hints.answered(batch, self._clock.monotonic_ns())
            self._tell()

    def _tell(self) -> None:
        """Tell what is due, and see to the rest when that is."""
        payload = self._hints.take(self._clock.monotonic_ns())
        if payload is not None and self._connected:
            self._channel.tell(payload)
        due_ns = self._hints.due_ns
        if due_ns is not None and self._alarm is None and self._loop is not None:
            delay_s = max(0, due_ns - self._clock.monotonic_ns()) / SECOND_NS
            self._alarm = self._loop.call_later(delay_s, self._tell_the_rest)

    def _tell_the_rest(self) -> None:
        self._alarm = None
        with self._surprises():
            self._tell()

    def _hear(self, payload: bytes) -> None:
        with self._surprises():
            self._hints.hear(payload, self._clock.monotonic_ns())

    @contextlib.contextmanager
    def _surprises(self) -> Iterator[None]:
        """Nothing in here should fail; if it does, an exchange must not."""
        try:
            yield
        except Exception:
            if not self._failures[BUG]:
                logger.exception("reconverge: hints failed in a way that was not foreseen")
            self._failures[BUG] += 1

    def _note(self, problem: HubUnavailable | None) -> None:
        """There is a connection, or there is none, for that reason."""
        self._connected = problem is None
        if problem is None:
            return
        self._failures[problem.kind] += 1
        now_ns = self._clock.monotonic_ns()
        if self._quiet_until_ns is None or now_ns >= self._quiet_until_ns:
            self._quiet_until_ns = now_ns + QUIET_NS
            logger.warning(
                "reconverge: no hints by way of %s (%s); what others have used up is heard with the next exchange",
                self._name,
                str(problem).rstrip("."),
                extra={"kind": problem.kind},
            )

    async def close(self) -> None:
        """Let go of the connection."""
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self._loop = None
        self._connected = False
        await self._channel.close()

    def stats(self) -> HintsStats:
        """A snapshot."""
        hints = self._hints
        return HintsStats(
            connected=self._connected,
            told=hints.told,
            heard=hints.heard,
            heeded=hints.heeded,
            rejected=dict(hints.rejected),
            failures=dict(self._failures),
        )


def hinting_for(
    given: str | HintChannel | None, settings: HubSettings, kernel: Kernel, clock: Clock
) -> Callable[[], Hinting | None]:
    """Makes a node that hints, anew for every process; None where nobody is to be told.

    Raises:
        InvalidSetting, MissingExtra: see `open_channel`.
    """
    given = given or os.environ.get(VARIABLE) or None
    channel = None if given is None else open_channel(given, settings)
    if channel is None or given is None or kernel.alone:
        return lambda: None
    name = redacted(given) if isinstance(given, str) else repr(given)
    return lambda: Hinting(channel, kernel, clock, name=name)
