"""The setting `cold`, as `in_doubt` was called when only a key that was new to its node was waited for."""

from __future__ import annotations

import sys
import warnings
from typing import Final

from reconverge.errors import InvalidSetting
from reconverge.limiter.asking import WITHIN_MAX_S
from reconverge.limiter.doubt import REFUSE, said_s, within_s

DECIDE: Final = "decide"
"""What `in_doubt="refuse"` is now."""
PACKAGE: Final = "reconverge"


def checked_in_doubt(in_doubt: str | None, cold: str | None) -> str | None:
    """What is said of doubt, by either word; None if nothing is.

    Raises InvalidSetting for what cannot be, and where both words are given; warns of the former one.
    """
    if cold is None:
        if in_doubt is not None:
            within_s(in_doubt)
        return in_doubt
    if in_doubt is not None:
        problem = f"is the former word for in_doubt={in_doubt!r}, which is given, too; leave it out"
        raise InvalidSetting("cold", cold, problem)
    now = _now_said(cold)
    warnings.warn(f"cold={cold!r} is deprecated: write in_doubt={now!r}", DeprecationWarning, stacklevel=_level())
    return now


def _now_said(cold: object) -> str:
    """What a value of `cold` is called now. Raises InvalidSetting."""
    if cold == DECIDE:
        return REFUSE
    wait_s = said_s("wait", cold)
    if wait_s is None:
        raise InvalidSetting("cold", cold, f"is neither {DECIDE!r} nor a time to wait; write in_doubt='ask:25ms'")
    if not wait_s <= WITHIN_MAX_S:
        raise InvalidSetting("cold", cold, f"is longer than {WITHIN_MAX_S:g} s, the longest that a request may wait")
    return f"ask:{str(cold).partition(':')[2]}" if wait_s else REFUSE


def _level() -> int:
    """How many callers away from the caller of this the first code is that is no part of this package."""
    level, frame = 1, sys._getframe(1)  # noqa: SLF001  # there is no other way to look
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == PACKAGE:
        level, frame = level + 1, frame.f_back
    return level
