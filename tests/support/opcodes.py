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
"""The only places at which work is interrupted: not in the test itself."""


class Interrupted(Exception):
    """Raised by an interruption, as by a soft time limit."""


class Ended(BaseException):
    """Raised by an interruption, as by Ctrl-C: a handler for `Exception` does not catch it."""


def begin_tracing(trace: TraceFunction) -> None:
    """Traces as `sys.settrace` does, for a function that needs the instructions."""
    sys._getframe().f_trace_opcodes = True  # Python 3.12 reports them only if that was requested before
    sys.settrace(trace)


def trace_opcodes(frame: FrameType, trace: TraceFunction) -> None:
    """Calls `trace` before each instruction of a frame."""
    frame.f_trace = trace  # first: Python 3.13 heeds the next line only in a frame that is traced
    frame.f_trace_opcodes = True


def interrupted_at(
    number: int, work: Callable[[], object], interrupt: Callable[[], object], places: tuple[str, ...] = PLACES
) -> bool:
    """Does `work`, and calls `interrupt` before its instruction of that number. Returns whether there is one.

    Only instructions of the files below `places` count. An exception of `interrupt` comes out of the instruction.
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
    """Does `work` so that an exception that is still being handled is forgotten with the generator.

    Raised before the instruction that ends a handler, an exception leaves that handler's exception behind: any later
    one of the thread would have it as its context. No signal handler runs there.
    """
    yield work()


def raise_interrupted() -> None:
    """Raises the exception of a signal handler."""
    raise Interrupted


def raise_ended() -> None:
    """Raises the exception of a signal handler that no handler of an `Exception` catches."""
    raise Ended
