"""The input of the checker: the promises that apply, and the records of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, NamedTuple

from chaos.judge.history import Decide, Exchange, Life, Part, Sight
from chaos.names import BY_MACHINE
from reconverge.clock import SECOND_NS
from reconverge.limit import Limit
from reconverge.policies import Policy

DEEDS_OVER: Final = frozenset(f"{deed} over" for deed in ("jump", "stall", "hog", "flood", "ask"))
"""The events that a process records when it has carried out an order."""


class Violation(NamedTuple):
    """A promise that was not kept."""

    kind: str
    words: str


@dataclass(frozen=True)
class Case:
    """One contestant in one run. Moments are of the machine's monotonic clock."""

    limit: Limit
    policy: Policy
    members: int
    lives: list[Life]
    final: Sight
    """The hub's data after the end of all nodes."""
    sights: list[Sight] = field(default_factory=list)
    beyond: int = 0
    interval_ns: int = SECOND_NS // 10
    silence_ns: int = 0
    """The longest time for which a node may leave charges unreported that no other node needs to know."""
    interval_min_ns: int = SECOND_NS // 100
    """The shortest time between an exchange and one ahead of time."""
    reconverges_in_ns: int = 2 * SECOND_NS
    timeout_ns: int = SECOND_NS
    """The timeout of an exchange."""
    reckoning: str = "hub"
    outage: bool = True
    mute: bool = False
    loses_data: bool = False
    slots: int = 0
    """The number of slots; 0 if nodes take no slots."""
    slots_beyond: int = 0
    """The number of further slots in use that the promises allow."""
    slots_lease_ns: int = SECOND_NS
    start_ns: int = 0
    load_end_ns: int = 0
    end_ns: int = 0
    spells: tuple[tuple[int, int], ...] = ()
    """The beginning and end of each fault."""
    parts: tuple[Part, ...] = ()
    """The faults that concern a part of the hub."""
    shards: int = 1
    noted: Mapping[str, int] = field(default_factory=dict)
    """The counts that faults have noted."""
    leaks: tuple[str, ...] = ()
    hangs: tuple[str, ...] = ()
    """The places at which processes stood still that ended themselves for that reason."""

    @property
    def healed_ns(self) -> int:
        """Returns the moment from which on no fault was active, and each surviving process had begun.

        The effect of an order lasts until the process records that it is over.
        """
        ends_ns = [end_ns for _, end_ns in self.spells]
        done_ns = [t_ns for life in self.survivors for t_ns, what in life.ordered if what in DEEDS_OVER]
        return max([self.start_ns, *ends_ns, *done_ns, *(life.born_ns for life in self.survivors)])

    @cached_property
    def decisions(self) -> list[Decide]:
        """Returns all decisions, in order."""
        return sorted(one for life in self.lives for one in life.decisions)

    @cached_property
    def exchanges(self) -> list[Exchange]:
        """Returns all exchanges, in order."""
        return sorted((one for life in self.lives for one in life.exchanges), key=lambda one: one.sent_ns)

    @property
    def survivors(self) -> list[Life]:
        """Returns the lives that lasted to the end, when all was well again."""
        return [
            life
            for life in self.lives
            if life.facts is not None and any(view.t_ns > self.load_end_ns for view in life.views)
        ]

    def in_spell(self, moment_ns: int) -> bool:
        """Returns whether a fault was active at that moment."""
        return any(begin_ns <= moment_ns < end_ns for begin_ns, end_ns in self.spells)

    def place_of(self, one: Decide) -> tuple[int, int]:
        """Returns the window in which a decision is judged, and its time there."""
        if self.reckoning == BY_MACHINE:
            return one.wall_ns // self.limit.window_ns, one.wall_ns
        return one.epoch, one.hub_ns

    def late_ns(self, *, after_ns: int) -> int:
        """Returns the longest delay of a process by the machine since then."""
        return max((one.late_ns for life in self.lives for one in life.late if one.t_ns >= after_ns), default=0)


Expectation = Callable[[Case], Iterable[Violation]]
"""A function that checks something beside the invariants."""
