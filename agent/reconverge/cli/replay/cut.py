"""When nodes are cut off from the hub: `2@30s+20s`, two of them from the 30th second on, for 20 seconds."""

from __future__ import annotations

import re
from dataclasses import dataclass
from random import Random
from typing import Final

from reconverge.errors import InvalidSetting

ALL: Final = "all"
HALF: Final = "half"
_FORM: Final = re.compile(
    r"(?P<nodes>\d{1,4}|all|half)@(?P<start>\d{1,6}(?:\.\d+)?)s?\+(?P<length>\d{1,6}(?:\.\d+)?)s?"
)


@dataclass(frozen=True, slots=True)
class Cut:
    """These nodes are cut off for a while. Times are real seconds after the start."""

    nodes: frozenset[int]
    start_s: float
    length_s: float

    @property
    def end_s(self) -> float:
        """When the wire is healed."""
        return self.start_s + self.length_s

    @classmethod
    def parse(cls, text: str, *, nodes: int, random: Random) -> Cut:
        """Read `NODES@START+LENGTH`; which nodes it is of so many is drawn. Raises InvalidSetting."""
        match = _FORM.fullmatch(text.strip())
        if match is None:
            raise InvalidSetting("cut", text, "is not NODES@START+LENGTH, like 2@30s+20s, half@10s+5s or all@8s+6s")
        wanted = {ALL: nodes, HALF: nodes // 2}.get(match["nodes"])
        count = int(match["nodes"]) if wanted is None else wanted
        if not 1 <= count <= nodes:
            raise InvalidSetting("cut", text, f"cuts off {count} nodes of {nodes}; there must be 1 to {nodes}")
        if float(match["length"]) == 0:
            raise InvalidSetting("cut", text, "lasts no time at all")
        return cls(frozenset(random.sample(range(nodes), count)), float(match["start"]), float(match["length"]))
