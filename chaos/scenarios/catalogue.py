"""All scenarios, in the order of the catalogue of faults."""

from __future__ import annotations

from typing import Final

from chaos.scenarios import asking, hostile, network, other_topologies, process, server, slots
from chaos.scenarios.mixed import MIX_S, draw_mix
from chaos.scenarios.scenario import Scenario

MIX: Final = "mix"
STORM: Final = "signal-storm"
DEFAULT_SEED: Final = 1

ON_ONE_REDIS: Final = (*network.SCENARIOS, *server.SCENARIOS, *process.SCENARIOS)
ALL: Final = (
    *ON_ONE_REDIS,
    *hostile.SCENARIOS,
    *asking.SCENARIOS,
    *slots.SCENARIOS,
    *other_topologies.SCENARIOS,
    *other_topologies.again(ON_ONE_REDIS),
)
FIXED: Final = {scenario.name: scenario for scenario in sorted(ALL, key=lambda scenario: scenario.number)}
NAMES: Final = (*FIXED, MIX)


def scenario_of(name: str, seed: int, *, length_s: float | None = None) -> Scenario:
    """Returns the scenario of that name; a mix is drawn from the seed. Raises KeyError.

    A mix and a storm of signals last for `length_s` seconds, if that is given.
    """
    if name == MIX:
        return draw_mix(seed, length_s=length_s or MIX_S)
    return hostile.storm_for(length_s) if name == STORM and length_s else FIXED[name]
