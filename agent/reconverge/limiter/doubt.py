"""The setting `in_doubt`: whether a request that memory cannot settle asks the hub, and for how long."""

from __future__ import annotations

import re
from typing import Final

from reconverge.errors import InvalidSetting
from reconverge.limiter.asking import WITHIN_MAX_S

REFUSE: Final = "refuse"
"""Do not ask: in doubt, memory decides by the policy."""
ASK: Final = "ask:25ms"
_TIME: Final = re.compile(r"ask:(?P<number>[0-9]+(?:\.[0-9]+)?) ?(?P<unit>ms|s)")


def within_s(in_doubt: object) -> float:
    """Returns for how long a request in doubt asks the hub, in seconds: 0.0 for "refuse", 0.025 for "ask:25ms".

    Raises InvalidSetting for anything else, for a time of zero, and for more than ten seconds.
    """
    if in_doubt == REFUSE:
        return 0.0
    match = _TIME.fullmatch(in_doubt) if isinstance(in_doubt, str) else None
    if match is None:
        raise InvalidSetting("in_doubt", in_doubt, f"is neither {REFUSE!r} nor a time to ask within, such as {ASK!r}")
    asked_s = float(match["number"]) / (1000 if match["unit"] == "ms" else 1)
    if not 0 < asked_s <= WITHIN_MAX_S:
        raise InvalidSetting(
            "in_doubt", in_doubt, f"is not between 0 and {WITHIN_MAX_S:g} s, the longest that a request may wait"
        )
    return asked_s
