"""Waiting for the hub's first answer about a key that is new to this node: once for each key, and not for long."""

from __future__ import annotations

import asyncio
import re
import threading
from typing import Final, NamedTuple

from reconverge.clock import MILLISECOND_NS, SECOND_NS, SystemClock
from reconverge.errors import InvalidSetting
from reconverge.limiter.certainty import asked_if_new, unheard
from reconverge.limiter.limiter import Limiter

DECIDE: Final = "decide"
"""Do not wait: the policy says what a node may do with a key that it knows nothing of."""
WAIT_MAX_S: Final = 10.0
POLL_S: Final = 0.001
"""The pause between two looks for the answer; a round trip takes about as long."""
POLLS: Final = 8
"""A request that has waited long looks less often: it pauses for the time that it has waited, divided by this."""
_TIME: Final = re.compile(r"(?P<word>[a-z]+):(?P<number>[0-9]+(?:\.[0-9]+)?) ?(?P<unit>ms|s)")
_clock: Final = SystemClock()
"""The machine's, whatever clock the agent has: it is the network that is waited for."""


def said_s(word: str, setting: object) -> float | None:
    """The seconds that a setting such as "wait:10ms" or "ask:1.5 s" names behind its word; None if it does not."""
    match = _TIME.fullmatch(setting) if isinstance(setting, str) else None
    if match is None or match["word"] != word:
        return None
    return float(match["number"]) / (1000 if match["unit"] == "ms" else 1)


def cold_s(cold: object) -> float:
    """How long a request on a brand-new key waits, in seconds: 0.0 for "decide", else as "wait:10ms" says.

    Raises InvalidSetting for anything else, and for more than ten seconds.
    """
    if cold == DECIDE:
        return 0.0
    wait_s = said_s("wait", cold)
    if wait_s is None:
        raise InvalidSetting("cold", cold, f"is neither {DECIDE!r} nor a time to wait such as 'wait:10ms'")
    if not wait_s <= WAIT_MAX_S:
        raise InvalidSetting("cold", cold, f"is longer than {WAIT_MAX_S:g} s, the longest that a request may wait")
    return wait_s


class Cold(NamedTuple):
    """A key that is new to this node, which the hub has been asked about."""

    limiter: Limiter
    key: str
    wait_s: float

    async def wait(self) -> None:
        """Wait for the answer without holding up the event loop."""
        began_ns = _clock.monotonic_ns()
        while (pause_s := self._pause_s(began_ns)) > 0:  # noqa: ASYNC110  # no event tells of an answer without a queue
            await asyncio.sleep(pause_s)

    def wait_blocking(self) -> None:
        """Wait for the answer on this thread; in one with an event loop, which would be held up, not at all."""
        if has_a_loop():
            return
        began_ns, never = _clock.monotonic_ns(), threading.Event()
        while (pause_s := self._pause_s(began_ns)) > 0:
            never.wait(pause_s)

    def _pause_s(self, began_ns: int) -> float:
        """How long to sleep before the next look; zero or less when the wait is over."""
        if not unheard(self.limiter, self.key):
            return 0.0
        passed_s = (_clock.monotonic_ns() - began_ns + MILLISECOND_NS // 1000) / SECOND_NS
        return min(max(POLL_S, passed_s / POLLS), self.wait_s - passed_s)


def cold_key(limiter: Limiter, key: str, wait_s: float) -> Cold | None:
    """A key to wait for: this node has neither heard of it, nor waited for it before. The hub is asked about it."""
    return Cold(limiter, key, wait_s) if asked_if_new(limiter, key) else None


def has_a_loop() -> bool:
    """Whether an event loop runs on this thread, so that waiting would hold it up."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
