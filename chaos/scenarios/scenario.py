"""The definition of a scenario: a fleet, its requests, its faults with their times, and the promises."""

from __future__ import annotations

import math
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
"""The tenures (a leader's terms) of an election: until the last leader's silence is noticed, a member has claimed its
place, and has waited for its turn."""
TIGHT: Final = Limit(200, 1.0, algorithm=FIXED_WINDOW)
"""A limit with requests for three times as much, so that it is full for most of each window."""
ROOMY: Final = Limit(1000, 1.0, algorithm=FIXED_WINDOW)
"""A limit with requests for half of it, so that some are admitted all the time."""
ROOMY_DEMAND: Final = 0.5
LASTING: Final = Limit(40, 3600.0, algorithm=FIXED_WINDOW)
"""A limit with a window longer than any run, so that its use still matters after the load."""
LASTING_DEMAND: Final = 4.0
SLOTS: Final = 6
"""The number of slots; four nodes together, or one that is alone, want twice as many."""


@dataclass(frozen=True, slots=True)
class Spell:
    """A fault that lasts for a while. Times are seconds after the start of the load."""

    fault: Fault
    start_s: float
    end_s: float
    shown: bool = True
    """Whether it is shown as the fault in pictures and figures."""
    shards: frozenset[int] | None = None
    """The shards that it concerns, or None for all; in the other shards nothing may be noticed."""
    name: str = ""
    """The name in figures; only of faults that concern a part of the hub."""


@dataclass(frozen=True, slots=True)
class Rival:
    """A rival that the scenario must catch, and the violation at which it must be caught."""

    name: str
    caught_at: str
    alone: bool = False
    """Whether it gets a run of its own, as it would hold up contestants beside it."""


@dataclass(frozen=True)
class Scenario:
    """A scenario: settings of a fleet, its load, its faults, and the promises that apply."""

    name: str
    number: int
    """The number in the catalogue of faults, which several scenarios may share."""
    claim: str
    spells: tuple[Spell, ...]
    load_s: float
    rivals: tuple[Rival, ...] = ()
    limit: Limit = TIGHT
    policy_name: str = "balanced"
    cold_allowance: float = 0.0
    nodes: int = 4
    agents: int = 1
    """The number of agents in each process."""
    names_more: int = 0
    """The largest number of names beyond that of agents that take part in a window, as processes come and go."""
    demand: float = 3.0
    """The requested cost in each window, or in each second of longer ones, as a multiple of the quota."""
    pattern: str = "uniform"
    keys: int = 1
    cost_max: int = 1
    more_keys: tuple[str, ...] = ()
    """Further keys that are asked about now and then."""
    flooded: tuple[Limit, ...] = ()
    """Further limits, under which a stranger can flood the nodes with distinct keys."""
    interval_s: float = 0.1
    timeout_s: float = 0.4
    lease_s: float = LEASE_S
    silence_s: float = 1.0
    """The longest time for which a node leaves a key unreported that is far from its limit; agents have ten seconds."""
    keys_max: int = KEYS_MAX
    deployment: str = REDIS
    guarded: bool = False
    """Whether there is TLS, and users have only the rights that they need."""
    ground: str = WIRES
    obeys: bool = False
    """Whether our own agents apply published settings."""
    program: str = THREAD
    pure_nodes: tuple[int, ...] = ()
    """The nodes whose kernel is the one in Python; all others have the compiled one."""
    third_party: bool = False
    """Whether our agents get a third-party hub object, which can be ordered to answer nonsense."""
    replica: bool = False
    shifted: bool = False
    """Whether the server's clock can be shifted."""
    reckoning: str = BY_HUB
    beyond: int = 0
    """The allowed over-admission on top of the declared bound; `beyond_why` gives the exception in the promises."""
    beyond_why: str = ""
    slots: int = SLOTS
    """The number of slots on all nodes together."""
    slots_beyond: int = 0
    """The allowed number of slots in use beyond the limit, for the same reason."""
    outage: bool = True
    """Whether no node can exchange during the faults, so that none may try more often than in good times."""
    mute: bool = False
    """Whether nodes may end without a last report; in the window in which their lease ends, what they held counts as
    used."""
    expectations: tuple[Expectation, ...] = ()
    """The checks besides the invariants."""
    bound: bool = False
    """Whether all steps are written down, to be compared with the model; see `chaos/bound`."""

    @property
    def slots_lease_s(self) -> float:
        """Returns the shortest lease that such a limit can have."""
        return lease_min_s(self.interval_s, self.timeout_s)

    @property
    def policy(self) -> Policy:
        """Returns the policy of the nodes."""
        return choose(self.policy_name, cold_allowance=self.cold_allowance)

    @property
    def members(self) -> int:
        """Returns the number of nodes by which the promises count."""
        return self.nodes * self.agents + self.names_more

    @property
    def over_admission_max(self) -> int:
        """Returns the largest promised excess of a window over the capacity, for a key known on all nodes."""
        return math.floor(self.policy.bound(self.limit.capacity, self.members, self.cost_max)) + self.beyond

    @property
    def loses_data(self) -> bool:
        """Returns whether the server forgets something that it had confirmed."""
        if self.deployment == BROKER:
            # The member that kept the ledger could not answer meanwhile, and another one begins anew.
            return any(not isinstance(spell.fault, Fed) for spell in self.spells)
        return any(isinstance(spell.fault, LOSING) for spell in self.spells)

    @property
    def healed_s(self) -> float:
        """Returns the time at which the last fault ends, in seconds after the start of the load."""
        return max((spell.end_s for spell in self.spells), default=0.0)

    @property
    def reconverges_in_s(self) -> float:
        """Returns the longest time from then until all agree: silence, two intervals, a back-off, and a timeout.

        Members of a broker first have to connect again, and to elect one of them.
        """
        elected_s = (PAUSE_S[1] + ELECTION_TENURES * TENURE_NS / SECOND_NS) if self.deployment == BROKER else 0.0
        backoff_s = max(self.interval_s, BACKOFF_CAP_NS / SECOND_NS)
        return elected_s + self.silence_s + 2 * self.interval_s + backoff_s + self.timeout_s

    @property
    def contestants(self) -> tuple[str, ...]:
        """Returns the rivals that run side by side with our agents."""
        return tuple(rival.name for rival in self.rivals if not rival.alone)

    @property
    def loners(self) -> tuple[str, ...]:
        """Returns the rivals that run alone."""
        return tuple(rival.name for rival in self.rivals if rival.alone)
