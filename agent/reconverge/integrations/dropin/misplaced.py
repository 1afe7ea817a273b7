"""Names the remedy for a storage of `limits` that waits in a strategy that does not, and for the reverse."""

# Theory of operation.
#
# The problem. A storage URI with `async+` makes a storage whose methods are coroutine functions. In a strategy that
# waits for none, as Flask-Limiter has, the library stops at a bare `assert isinstance(storage, Storage)`.
#
# How it works. For that assertion Python asks each class below the library's `Storage` whether it takes the other
# class, and so our storage, which has the hook `__subclasshook__`. It raises the error if the strategies ask it; in
# any other place the answer is as without it, since a program may well ask which kind a storage has.
from __future__ import annotations

import sys
from typing import Final

from reconverge.errors import InvalidSetting

FRAMES_MAX: Final = 16
"""How many calls lie at most between the assertion and our hook."""


def refuse_in(strategies: str, kind: type, base: type, problem: str) -> None:
    """Raises InvalidSetting if the module `strategies` asks about a storage of the other kind, a class below `base`."""
    if base not in kind.__mro__:
        return
    frame = sys._getframe(1)  # noqa: SLF001  # as `inspect.currentframe`, which may return None
    for _ in range(FRAMES_MAX):
        if frame.f_globals.get("__name__") == strategies:
            raise InvalidSetting("storage", kind.__name__, problem)
        if frame.f_back is None:
            return
        frame = frame.f_back
