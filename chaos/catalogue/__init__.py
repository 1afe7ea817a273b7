"""All scenarios, in the order of the catalogue of faults."""

from __future__ import annotations

from typing import Final

from chaos.catalogue import elsewhere, network, process, server
from chaos.catalogue.mixed import MIX_S, draw_mix
from chaos.scenario import Scenario

MIX: Final = "mix"
DEFAULT_SEED: Final = 1

ON_ONE_REDIS: Final = (*network.SCENARIOS, *server.SCENARIOS, *process.SCENARIOS)
ALL: Final = (*ON_ONE_REDIS, *elsewhere.SCENARIOS, *elsewhere.again(ON_ONE_REDIS))
FIXED: Final = {scenario.name: scenario for scenario in sorted(ALL, key=lambda scenario: scenario.number)}
NAMES: Final = (*FIXED, MIX)


def scenario_of(name: str, seed: int, *, mix_s: float = MIX_S) -> Scenario:
    """The scenario of that name; a mix is drawn from the seed, and lasts so long. Raises KeyError."""
    return draw_mix(seed, length_s=mix_s) if name == MIX else FIXED[name]
