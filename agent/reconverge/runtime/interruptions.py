"""Detects callers that must not wait: their thread runs an event loop, or handles a signal or a finalizer."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from types import CodeType, FrameType
from typing import Any


def has_a_loop() -> bool:
    """Returns whether an event loop runs on this thread, so that a wait would block the loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def in_a_handler() -> str:
    """Returns a phrase such as "in a signal handler" if this thread is in a handler or finalizer; else "".

    The search goes through the frames of the thread. A signal handler is recognized by its code, on the main thread
    alone. A callback of a weak reference, or of the garbage collector, looks like any other call, and is not
    recognized.
    """
    handlers: set[CodeType] = set()
    if threading.current_thread() is threading.main_thread():
        found = (_code_of(signal.getsignal(number)) for number in signal.valid_signals())
        handlers = {code for code in found if code is not None}
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # there is no other way to look
    while frame is not None:
        if frame.f_code in handlers:
            return "in a signal handler"
        if frame.f_code.co_name == "__del__":
            return "in a finalizer"
        frame = frame.f_back
    return ""


def _code_of(handler: object) -> CodeType | None:
    function: Any = getattr(handler, "func", handler)
    function = getattr(function, "__func__", function)
    code: Any = getattr(function, "__code__", None)
    return code if isinstance(code, CodeType) else None
