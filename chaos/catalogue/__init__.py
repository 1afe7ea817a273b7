"""All scenarios, in the order of the catalogue of faults."""

from __future__ import annotations

from typing import Final

from chaos.catalogue import network, process, server
from chaos.catalogue.mixed import MIX_S, draw_mix
from chaos.scenario import Scenario

MIX: Final = "mix"
DEFAULT_SEED: Final = 1

FIXED: Final = {scenario.name: scenario for scenario in (*network.SCENARIOS, *server.SCENARIOS, *process.SCENARIOS)}
NAMES: Final = (*FIXED, MIX)


def scenario_of(name: str, seed: int, *, mix_s: float = MIX_S) -> Scenario:
    """The scenario of that name; a mix is drawn from the seed, and lasts so long. Raises KeyError."""
    return draw_mix(seed, length_s=mix_s) if name == MIX else FIXED[name]
