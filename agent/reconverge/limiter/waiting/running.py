"""Runs a generator that yields times to sleep and returns an answer, in an event loop or on a thread."""

# An error that comes during a sleep, such as a cancellation, goes to the caller and never into the generator, which is
# closed.

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import TypeVar

Time = TypeVar("Time")
Answer = TypeVar("Answer")


async def run(steps: Generator[Time, None, Answer], sleep: Callable[[Time], Awaitable[object]]) -> Answer:
    """Runs `steps`, awaiting `sleep` with each time that it yields. Returns the generator's result."""
    try:
        while True:
            try:
                time = next(steps)
            except StopIteration as end:
                answer: Answer = end.value
                return answer
            await sleep(time)
    finally:
        steps.close()


def run_blocking(steps: Generator[Time, None, Answer], sleep: Callable[[Time], object]) -> Answer:
    """Runs `steps` on the calling thread, calling `sleep` with each time that it yields. Returns its result."""
    try:
        while True:
            try:
                time = next(steps)
            except StopIteration as end:
                answer: Answer = end.value
                return answer
            sleep(time)
    finally:
        steps.close()
