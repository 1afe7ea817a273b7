"""Runs a generator that yields times to sleep and returns an answer, in an event loop or on a thread."""

# An error that comes during a sleep, such as a cancellation, goes to the caller and never into the generator, which is
# closed.

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import TypeVar

Time = TypeVar("Time")
Answer = TypeVar("Answer")


async def run(steps: Generator[Time, None, Answer], sleep: Callable[[Time], Awaitable[object]]) -> Answer:
    """Sleeps for each time that a generator yields; returns the generator's result."""
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
    """Does as `run`, on the calling thread."""
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
