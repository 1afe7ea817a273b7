"""The plan that a node process gets before it begins."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Final, NamedTuple, Self

from reconverge.limit import Limit

THREAD: Final = "thread"
"""An ordinary program."""
GEVENT: Final = "gevent"
"""The program that asks a server, in whose worker the decisions are made."""


class Request(NamedTuple):
    """One request that a node is to make."""

    moment_ns: int
    """When, after the common start."""
    key: str
    cost: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything a node needs to know. It travels to the process as one line of JSON."""

    node: int
    url: str
    rivals_url: str
    """Where rivals meet: as users of their own, and with libraries that read other URLs."""
    shards: int
    directory: str
    """Where the histories are written."""
    contestants: tuple[str, ...]
    """Each request is decided once by each of them; they share nothing but the network."""
    program: str
    """What kind of process it is: see `chaos.fleet.programs`."""
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
    """Whether our agents are given a hub object that can be ordered to answer nonsense."""
    slots: int
    """How much may be in progress at once, on all nodes together; 0 where nodes take no slots."""
    slots_lease_s: float
    alone: bool
    """Whether there is no other node."""
    seed: int
    """For what a node draws by itself."""
    obeys: bool
    """Whether our own agents obey settings that are published."""
    agents: int
    """How many agents the process has, where its program can have several."""
    load_ns: int
    """How long the requests go on."""
    requests: tuple[Request, ...]

    def as_line(self) -> str:
        """How it travels."""
        return json.dumps(asdict(self))

    @classmethod
    def of_line(cls, line: str) -> Self:
        """The plan that travelled."""
        facts = json.loads(line)
        facts["limit"] = Limit(**facts["limit"])
        facts["flooded"] = tuple(Limit(**limit) for limit in facts["flooded"])
        facts["requests"] = tuple(Request(*request) for request in facts["requests"])
        facts["contestants"] = tuple(facts["contestants"])
        return cls(**facts)
