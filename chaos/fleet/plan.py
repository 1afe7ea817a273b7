"""The plan that a node process gets before it begins."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Final, NamedTuple, Self

from reconverge.limit import Limit

THREAD: Final = "thread"
"""The name of an ordinary program."""
GEVENT: Final = "gevent"
"""The name of the program that sends requests to a server, in whose worker the decisions are made."""


class Request(NamedTuple):
    """One request that a node is to make."""

    moment_ns: int
    """The moment of the request, in nanoseconds after the common start."""
    key: str
    cost: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The settings of a node. They travel to the process as one line of JSON."""

    node: int
    url: str
    rivals_url: str
    """The URL at which rivals meet: they have users of their own, and libraries that read other URLs."""
    shards: int
    directory: str
    """The directory of the histories."""
    contestants: tuple[str, ...]
    """The contestants. Each request is decided once by each of them; they share nothing but the network."""
    program: str
    """The kind of process; see `chaos.fleet.programs`."""
    limit: Limit
    policy: str
    cold_allowance: float
    interval_s: float
    timeout_s: float
    lease_s: float
    silence_s: float
    keys_max: int
    flooded: tuple[Limit, ...]
    """Further limits, under which a stranger can flood the node with distinct keys."""
    third_party: bool
    """Whether our agents get a hub object that can be ordered to answer nonsense."""
    slots: int
    """The number of slots on all nodes together; 0 if nodes take no slots."""
    slots_lease_s: float
    alone: bool
    """Whether there is no other node."""
    seed: int
    """The seed for random numbers of the node itself."""
    obeys: bool
    """Whether our own agents apply published settings."""
    agents: int
    """The number of agents in the process, if its program can have several."""
    followed: tuple[str, ...]
    """The keys of which our agents write down all steps, for the judge who compares them with the model."""
    load_ns: int
    """The duration of the requests, in nanoseconds."""
    requests: tuple[Request, ...]

    def as_line(self) -> str:
        """Returns the plan as a line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def of_line(cls, line: str) -> Self:
        """Returns the plan from a line of JSON."""
        facts = json.loads(line)
        facts["limit"] = Limit(**facts["limit"])
        facts["flooded"] = tuple(Limit(**limit) for limit in facts["flooded"])
        facts["requests"] = tuple(Request(*request) for request in facts["requests"])
        facts["contestants"], facts["followed"] = tuple(facts["contestants"]), tuple(facts["followed"])
        return cls(**facts)
