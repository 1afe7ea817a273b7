"""Interrupts code of the agent at a chosen instruction, as a signal handler does at some of them."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from tests.support.opcodes import begin_tracing, trace_opcodes


class Interruption(Exception):
    """The exception of a signal handler, such as that of a soft time limit."""


def throw() -> None:
    raise Interruption


class Interruptor:
    """Counts the instructions that this thread executes in some files, and calls a handler at one of them."""

    def __init__(self, at: int, handler: Callable[[], object], *modules: ModuleType) -> None:
        self._left = at
        self._handler = handler
        self._files = {str(Path(str(module.__file__))) for module in modules}
        self.reached = False
        """Whether there were so many instructions."""

    @contextlib.contextmanager
    def interrupts(self) -> Iterator[None]:
        """Interrupts the block once; the exception that interrupts it, if any, ends there."""
        with contextlib.suppress(Interruption):
            begin_tracing(self._trace)
            try:
                yield
            finally:
                sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, _argument: Any) -> Callable[..., Any] | None:
        if frame.f_code.co_filename not in self._files or self.reached:
            return None
        trace_opcodes(frame, self._trace)
        if event == "opcode":
            self._left -= 1
            if self._left < 0 and not self.reached:
                self.reached = True
                sys.settrace(None)
                self._handler()
        return self._trace
