"""Raises a helpful error if an asynchronous storage is given to a synchronous strategy of `limits`, or the reverse."""

# Theory of operation.
#
# The problem. A storage URI with `async+` makes a storage whose methods are coroutine functions. A strategy that does
# not await them, as in Flask-Limiter, stops at the library's bare `assert isinstance(storage, Storage)`.
#
# How it works. For that `isinstance`, Python asks each subclass of the library's `Storage`, our storage among them,
# whether it is a base of the given storage. Our storage has a `__subclasshook__` for this question. If the question
# comes from the module of the strategies, the hook raises our error. Elsewhere it changes nothing, because a program
# may have reasons to ask of which kind a storage is.
from __future__ import annotations

import sys
from typing import Final

from reconverge.errors import InvalidSetting

FRAMES_MAX: Final = 16
"""The most calls that lie between the assertion and our hook."""


def refuse_in(strategies: str, kind: type, base: type, problem: str) -> None:
    """Raises InvalidSetting if a storage of the wrong kind was given to the strategies in the module `strategies`.

    `kind` is the class of the storage; it is of the wrong kind if it is a subclass of `base`. `problem` is the text of
    the error. Called by a `__subclasshook__`, so the calls above this one show which module asks.
    """
    if base not in kind.__mro__:
        return
    frame = sys._getframe(1)  # noqa: SLF001  # as `inspect.currentframe`, which may return None
    for _ in range(FRAMES_MAX):
        if frame.f_globals.get("__name__") == strategies:
            raise InvalidSetting("storage", kind.__name__, problem)
        if frame.f_back is None:
            return
        frame = frame.f_back
