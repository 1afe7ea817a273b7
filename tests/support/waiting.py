"""The only waiting in tests: for a condition to become true, with a deadline."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Final

from tests.support.servers import POLL_S, wait_until

EVENTUALLY_S: Final = 30.0
"""The longest wait, in seconds: far more than anything takes, even on a busy machine; only a failing test waits so
long."""


def eventually(
    condition: Callable[[], object], what: str, seconds: float = EVENTUALLY_S, *, pause_s: float = POLL_S
) -> None:
    """Waits until `condition` holds. Raises AssertionError if it does not within `seconds`.

    A condition that costs processor time, such as requests to servers that are starting, needs a longer pause: it would
    take that time from the servers.
    """
    try:
        wait_until(lambda: bool(condition()), what, seconds, pause_s=pause_s)
    except TimeoutError:
        raise AssertionError(f"not within {seconds:g} s: {what}") from None


def exit_code_of(child: int) -> int:
    """Waits until a child process has ended.

    Returns its exit code, or the negative number of the signal that ended it.
    """
    statuses: list[int] = []

    def has_ended() -> bool:
        ended, status = os.waitpid(child, os.WNOHANG)
        statuses.append(status)
        return bool(ended)

    eventually(has_ended, "the end of the child")
    return os.waitstatus_to_exitcode(statuses[-1])


async def eventually_in_loop(condition: Callable[[], object], what: str, seconds: float = EVENTUALLY_S) -> None:
    """Waits as `eventually`, and the running loop goes on meanwhile."""
    try:
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110  # the condition may become true in any thread or process
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        raise AssertionError(f"not within {seconds:g} s: {what}") from None
