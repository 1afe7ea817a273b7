"""Interrupts work at any instruction, as a signal handler, a finalizer or the collector may, by tracing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, TypeAlias

import reconverge
import reconverge_sync

TraceFunction: TypeAlias = Callable[[FrameType, str, Any], Any]
PLACES = (*reconverge.__path__, *reconverge_sync.__path__)
"""Only there: what a test does is not interrupted."""


class Interrupted(Exception):
    """Raised where the work is interrupted, as a soft time limit would be."""


class Ended(BaseException):
    """Raised where the work is interrupted, as Ctrl-C would be: nothing that catches every `Exception` catches it."""


def begin_tracing(trace: TraceFunction) -> None:
    """Traces as `sys.settrace` does, for a function that wants to hear of instructions."""
    sys._getframe().f_trace_opcodes = True  # Python 3.12 tells of them only if it had been asked to before
    sys.settrace(trace)


def trace_opcodes(frame: FrameType, trace: TraceFunction) -> None:
    """Calls `trace` before each instruction of a frame."""
    frame.f_trace = trace  # first: Python 3.13 heeds the next line only in a frame that is traced
    frame.f_trace_opcodes = True


def interrupted_at(
    number: int, work: Callable[[], object], interrupt: Callable[[], object], places: tuple[str, ...] = PLACES
) -> bool:
    """Do `work`, and call `interrupt` before its instruction of that number; returns whether there is one.

    Only instructions of the files below `places` count. What `interrupt` raises comes out of the instruction.
    """
    left = number

    def enter(frame: FrameType, _event: str, _: Any) -> Any:
        if left < 0 or not frame.f_code.co_filename.startswith(places):
            return None
        frame.f_trace_lines = False
        trace_opcodes(frame, count)
        return count

    def count(_frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if event == "opcode":
            left -= 1
            if left < 0:
                sys.settrace(None)
                interrupt()
                return None
        return count

    before = sys.gettrace()
    begin_tracing(enter)
    try:
        next(_apart(work))
    finally:
        sys.settrace(before)
    return left < 0


def _apart(work: Callable[[], object]) -> Iterator[object]:
    """Do `work` where an exception that goes on being handled is forgotten with the generator.

    Raised before the instruction that ends a handler, an exception leaves that handler's one behind: whatever the
    thread raises later would have it as its context. No signal handler runs there.
    """
    yield work()


def raise_interrupted() -> None:
    """An exception out of a signal handler."""
    raise Interrupted


def raise_ended() -> None:
    """An exception out of a signal handler that no handler of an `Exception` catches."""
    raise Ended
