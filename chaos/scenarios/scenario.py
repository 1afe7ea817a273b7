"""What a scenario is: a fleet, what it is asked, what goes wrong and when, and what is promised."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from chaos.deployments.deployment import BROKER, REDIS
from chaos.faults.fault import LOSING, Fault, Fed
from chaos.fleet.plan import THREAD
from chaos.judge.case import Expectation
from chaos.names import BY_HUB, WIRES
from reconverge.clock import SECOND_NS
from reconverge.limit import FIXED_WINDOW, Limit
from reconverge.policies import Policy, choose
from reconverge.runtime.backoff import BACKOFF_CAP_NS
from reconverge.settings import lease_min_s
from reconverge_sync.mqtt.election import TENURE_NS
from reconverge_sync.mqtt.session import PAUSE_S

LEASE_S: Final = 30.0
KEYS_MAX: Final = 1000
ELECTION_TENURES: Final = 3
"""Until the silence of the last leader is noticed, one has claimed its place, and has waited for its turn."""
TIGHT: Final = Limit(200, 1.0, algorithm=FIXED_WINDOW)
"""Of which three times as much is asked, so that it is full for most of each window."""
ROOMY: Final = Limit(1000, 1.0, algorithm=FIXED_WINDOW)
"""Of which half is asked, so that something is admitted all the time."""
ROOMY_DEMAND: Final = 0.5
LASTING: Final = Limit(40, 3600.0, algorithm=FIXED_WINDOW)
"""Of a window that no run outlasts, so that what was used of it is still of interest when all is quiet."""
LASTING_DEMAND: Final = 4.0
SLOTS: Final = 6
"""Of which twice as many are wanted, by four nodes or by one that is alone."""


@dataclass(frozen=True, slots=True)
class Spell:
    """Something goes wrong for a while. Times are seconds after the start of the load."""

    fault: Fault
    start_s: float
    end_s: float
    shown: bool = True
    """Whether it counts as the fault in pictures and figures."""
    shards: frozenset[int] | None = None
    """Those that it concerns, if not all; then the others must not notice."""
    name: str = ""
    """What it is called in figures; only of those that concern a part."""


@dataclass(frozen=True, slots=True)
class Rival:
    """Somebody whom the scenario must catch, and at what."""

    name: str
    caught_at: str
    alone: bool = False
    """It would hold up whoever runs beside it, so it gets a run of its own."""


@dataclass(frozen=True)
class Scenario:
    """One thing to live through."""

    name: str
    number: int
    """In the catalogue of faults; several scenarios may share one."""
    claim: str
    spells: tuple[Spell, ...]
    load_s: float
    rivals: tuple[Rival, ...] = ()
    limit: Limit = TIGHT
    policy_name: str = "balanced"
    cold_allowance: float = 0.0
    nodes: int = 4
    agents: int = 1
    """How many agents each process has."""
    names_more: int = 0
    """How many more names than agents take part in a window at most, as processes come and go."""
    demand: float = 3.0
    """Cost asked for in each window, and in each second of longer ones, as a multiple of the quota."""
    pattern: str = "uniform"
    keys: int = 1
    cost_max: int = 1
    more_keys: tuple[str, ...] = ()
    """Asked about now and then, besides."""
    flooded: tuple[Limit, ...] = ()
    """Further limits, under which a stranger can flood the nodes with distinct keys."""
    interval_s: float = 0.1
    timeout_s: float = 0.4
    lease_s: float = LEASE_S
    silence_s: float = 1.0
    """The longest that a node reports nothing about a key of which nobody is short; ten times as long by default."""
    keys_max: int = KEYS_MAX
    deployment: str = REDIS
    guarded: bool = False
    """Whether there is TLS, and users who may do no more than they must."""
    ground: str = WIRES
    obeys: bool = False
    """Whether our own agents obey settings that are published."""
    program: str = THREAD
    pure_nodes: tuple[int, ...] = ()
    """Nodes whose kernel is the one in Python; all others have the compiled one."""
    third_party: bool = False
    """Our agents are given a hub object that is not ours, and that can be ordered to answer nonsense."""
    replica: bool = False
    shifted: bool = False
    """The server's clock can be shifted."""
    reckoning: str = BY_HUB
    beyond: int = 0
    """Over-admission that the promises exclude, on top of the declared bound; `beyond_why` says by which words."""
    beyond_why: str = ""
    slots: int = SLOTS
    """How much may be in progress at once, on all nodes together."""
    slots_beyond: int = 0
    """In progress beyond the limit, for the same reason."""
    outage: bool = True
    """While it goes wrong nobody can exchange, so nobody may try more often than in good times."""
    mute: bool = False
    """Nodes may go without last words; in the window in which their lease ends, what they held counts as used."""
    expectations: tuple[Expectation, ...] = ()
    """What must be seen besides the invariants."""

    @property
    def slots_lease_s(self) -> float:
        """The shortest that such a limit can have."""
        return lease_min_s(self.interval_s, self.timeout_s)

    @property
    def policy(self) -> Policy:
        """How much the nodes dare."""
        return choose(self.policy_name, cold_allowance=self.cold_allowance)

    @property
    def members(self) -> int:
        """How many nodes there are, in the sense of the promises."""
        return self.nodes * self.agents + self.names_more

    @property
    def over_admission_max(self) -> int:
        """The promised most that a window admits above the capacity, for a key known on all nodes."""
        return math.floor(self.policy.bound(self.limit.capacity, self.members, self.cost_max)) + self.beyond

    @property
    def loses_data(self) -> bool:
        """Whether the server forgets something that it had confirmed."""
        if self.deployment == BROKER:
            # Whoever kept the ledger could not answer meanwhile, and another one begins anew.
            return any(not isinstance(spell.fault, Fed) for spell in self.spells)
        return any(isinstance(spell.fault, LOSING) for spell in self.spells)

    @property
    def healed_s(self) -> float:
        """When nothing goes wrong any more."""
        return max((spell.end_s for spell in self.spells), default=0.0)

    @property
    def reconverges_in_s(self) -> float:
        """The longest time after that until all agree: silence, two intervals, a back-off, and what is under way.

        Members of a broker have to connect again before that, and to elect one of them.
        """
        elected_s = (PAUSE_S[1] + ELECTION_TENURES * TENURE_NS / SECOND_NS) if self.deployment == BROKER else 0.0
        backoff_s = max(self.interval_s, BACKOFF_CAP_NS / SECOND_NS)
        return elected_s + self.silence_s + 2 * self.interval_s + backoff_s + self.timeout_s

    @property
    def contestants(self) -> tuple[str, ...]:
        """Who runs side by side, besides ours."""
        return tuple(rival.name for rival in self.rivals if not rival.alone)

    @property
    def loners(self) -> tuple[str, ...]:
        """Who runs alone."""
        return tuple(rival.name for rival in self.rivals if rival.alone)


Drawn = Callable[[int], Scenario]
"""A scenario that is drawn from a seed."""
