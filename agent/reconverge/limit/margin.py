"""How far past its quota a limit may go: softly, and in debt."""

# A soft quota is a larger capacity, and nothing else: merge rule, lines, policies and bounds know only capacities, so
# every promise holds with quota * (1 + soft) in the place of the quota. Only what is told keeps to the quota.
#
# A settlement charges the truth, even if it does not fit. One estimate that was wrong by a factor of a hundred would
# shut a key out for as many windows of a bucket; `max_debt` ends that. It is measured by the use of the whole fleet as
# far as known: by own use alone, a node with a small line would drop what fits into the quota. N nodes that settle
# within one exchange may get N times as deep.

from __future__ import annotations

from typing import Final

from reconverge.errors import InvalidLimit, shown

SOFT_MAX: Final = 1
"""A larger number is a percentage by mistake: 10 would stand for 1000 %."""


def check_soft(text: str, soft: object, *, nominal: int, most: int) -> None:
    """Raise InvalidLimit, which shows `text` as the limit, unless `soft` is a share that can be added to `nominal`."""
    if isinstance(soft, bool) or not isinstance(soft, int | float) or not 0 <= soft <= SOFT_MAX:
        problem = f"soft {shown(soft)} is not a share from 0 to {SOFT_MAX}; 0.1, or '10%' for agent.limit, is 10 % more"
        raise InvalidLimit(text, problem)
    if nominal * (1 + soft) > most:
        raise InvalidLimit(text, f"with soft {shown(soft)} it admits more than {most}")


def check_max_debt(text: str, max_debt: object, *, most: int) -> None:
    """Raise InvalidLimit unless `max_debt` is a cost, or None for as much as it takes."""
    if max_debt is None:
        return
    if isinstance(max_debt, bool) or not isinstance(max_debt, int):
        raise InvalidLimit(text, f"max_debt {shown(max_debt)} is not a whole number")
    if not 0 <= max_debt <= most:
        raise InvalidLimit(text, f"max_debt {shown(max_debt)} is not between 0 and {most}")
