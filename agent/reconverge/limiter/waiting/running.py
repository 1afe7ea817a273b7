"""Runs a generator that yields how long to sleep and returns an answer, in an event loop or on a thread."""

# An error during a sleep, such as a cancellation, is raised to the caller and not in the generator, which is closed.

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import TypeVar

Time = TypeVar("Time")
Answer = TypeVar("Answer")


async def run(steps: Generator[Time, None, Answer], sleep: Callable[[Time], Awaitable[object]]) -> Answer:
    """Runs the generator `steps`: awaits `sleep(time)` for each time that it yields. Returns the generator's result."""
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
    """Runs the generator `steps`: calls `sleep(time)` for each time that it yields. Returns the generator's result."""
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
