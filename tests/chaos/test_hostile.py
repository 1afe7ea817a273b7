"""Goal: floods of keys, a hub that answers nonsense, gevent, storms of signals and crash loops are lived through.

Method: short forms of scenarios nos. 27 to 31, as `python -m chaos` runs them, with the rivals that they must catch.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from chaos.faults.attacks import Flooded, Lied, NodeCrashed, ObjectLied
from chaos.faults.fault import Commanded
from chaos.faults.nonsense import TYPES
from chaos.names import OURS
from chaos.requirements import missing
from chaos.scenarios.catalogue import scenario_of
from chaos.scenarios.hostile import CRASH_REQUESTS, KEYS_PER_S
from chaos.scenarios.scenario import Scenario, Spell
from tests.chaos.test_chaos import SEED, judged, needs

CRASHES = 3


def shortened(name: str, load_s: float, *spells: Spell) -> Scenario:
    """A scenario of the catalogue that does not last as long, with other faults if any are given."""
    scenario = scenario_of(name, SEED)
    return replace(scenario, load_s=load_s, spells=spells or scenario.spells)


FLOOD = Spell(Flooded(KEYS_PER_S, (0,)), 1.0, 5.0)
QUICK = {
    scenario.name: scenario
    for scenario in (
        shortened("key-flood", 5.0, FLOOD),
        shortened("key-flood-small-hub", 5.0, scenario_of("key-flood-small-hub", SEED).spells[0], FLOOD),
        shortened("nonsense-hub", 4.5, Spell(Lied((TYPES,)), 0.5, 1.5), Spell(Lied(), 1.5, 3.0)),
        shortened("nonsense-hub-object", 4.5, Spell(ObjectLied(), 0.5, 3.0)),
        shortened("gevent-worker", 3.0),
        shortened("signal-storm", 8.0),
        shortened(
            "crash-loop",
            12.0,
            *(Spell(NodeCrashed(0, CRASH_REQUESTS), 0.5 + 0.1 * at, 0.6 + 0.1 * at) for at in range(CRASHES)),
            Spell(Commanded("ask", 1500), 5.0, 5.0, shown=False),
        ),
    )
}


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_ours_keeps_its_promises_and_rivals_beside_it_are_caught(name: str) -> None:
    """Each in its short form; rivals that would hold up the others have a test of their own."""
    scenario = replace(QUICK[name], rivals=tuple(rival for rival in QUICK[name].rivals if not rival.alone))
    needs(missing(scenario))

    verdict = judged(scenario, OURS)

    assert [] == verdict.found[OURS]
    assert [] == verdict.missed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "rival"), [(name, rival.name) for name in QUICK for rival in QUICK[name].rivals if rival.alone]
)
def test_a_rival_that_runs_alone_is_caught(name: str, rival: str) -> None:
    """At what it is to be caught at, by the judge that finds nothing wrong with ours."""
    (chosen,) = (one for one in QUICK[name].rivals if one.name == rival)
    scenario = replace(QUICK[name], rivals=(chosen,))
    needs(missing(scenario))

    assert [] == judged(scenario).missed
