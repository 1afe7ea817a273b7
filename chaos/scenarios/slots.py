"""Scenario no. 33: work in progress during faults. The nodes of most other scenarios take slots as well."""

from __future__ import annotations

from typing import Final

from chaos.faults.fault import Killed, NodeEnded, NodeKilled, Stopped, Unplugged
from chaos.judge.slots import IN_PROGRESS, come_back_from_the_killed
from chaos.scenarios.network import cut
from chaos.scenarios.scenario import ROOMY, ROOMY_DEMAND, Rival, Scenario, Spell

SCENARIOS: Final = (
    Scenario(
        name="slots",
        number=33,
        claim="Whatever goes wrong, no more is in progress than may be, but for what outlives the lease of its node.",
        spells=(
            Spell(Unplugged(), 1.0, 1.6),
            Spell(Stopped(), 3.0, 3.9),
            *cut((0, 1), 5.5, 9.0),
            Spell(Unplugged((2,)), 11.0, 14.0),
            Spell(Killed(), 16.0, 16.4),
            Spell(NodeEnded(1), 20.0, 20.2),
            Spell(NodeKilled(3), 23.0, 23.2),
            Spell(NodeKilled(2), 26.0, 26.2),
        ),
        load_s=30.0,
        rivals=(Rival("merged", IN_PROGRESS), Rival("reconnecting", IN_PROGRESS)),
        policy_name="strict",
        limit=ROOMY,
        demand=ROOMY_DEMAND,
        outage=False,
        expectations=(come_back_from_the_killed,),
    ),
)
