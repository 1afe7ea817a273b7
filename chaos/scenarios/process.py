"""Scenarios nos. 17 to 25: faults of the nodes."""

from __future__ import annotations

from typing import Final

from chaos.faults.fault import Commanded, NodeEnded, NodeKilled, Unplugged
from chaos.fleet.programs import WORKERS
from chaos.judge.checker import APART, LOST, OVER_ADMISSION, SWOLLEN
from chaos.judge.expectations import (
    BURST,
    CROWDING,
    NAMELESS,
    comes_back_spread_out,
    counts_overflow,
    does_not_catch_up,
    does_not_crowd,
    flags_staleness,
    has_names,
    leaks_nothing,
)
from chaos.names import PLAIN
from chaos.scenarios.network import cut, flapping
from chaos.scenarios.scenario import ROOMY, ROOMY_DEMAND, Rival, Scenario, Spell
from reconverge.limit import FIXED_WINDOW, Limit

KILLS: Final = 20
ENDS: Final = 8
HOSTILE_KEYS: Final = (
    "\x00",
    "a\x00b",
    "a\r\nINCR b",
    "\ud800",
    "ada\udfff",
    "{}",
    "{ada}",
    "}{",
    "k" * 1_000_000,
    "k" * 256,
    "ада",
    "\u202eada",
    "",
    " ada ",
    "*3\r\n$3\r\nSET",
)
FLOOD: Final = 20_000

SCENARIOS: Final = (
    Scenario(
        name="killed-nodes",
        number=17,
        claim="Twenty times a node is killed; what it had not reported is lost, nothing else, and strict stays strict.",
        spells=tuple(Spell(NodeKilled(number % 6), 1.0 + 0.5 * number, 1.1 + 0.5 * number) for number in range(KILLS)),
        load_s=13.0,
        rivals=(Rival("namesake", LOST),),
        policy_name="strict",
        nodes=6,
        ground=PLAIN,
        outage=False,
        limit=ROOMY,
        demand=ROOMY_DEMAND,
    ),
    Scenario(
        name="terminated-nodes",
        number=17,
        claim="Nodes are ordered to end, and lose nothing.",
        spells=tuple(Spell(NodeEnded(number % 4), 1.0 + 0.5 * number, 1.1 + 0.5 * number) for number in range(ENDS)),
        load_s=7.0,
        rivals=(Rival("mute", LOST),),
        policy_name="strict",
        ground=PLAIN,
        outage=False,
        limit=ROOMY,
        demand=ROOMY_DEMAND,
    ),
    Scenario(
        name="stalled-loop",
        number=18,
        claim="An event loop that stood still for two seconds knows how old its knowledge is, and does not catch up.",
        spells=(Spell(Commanded("stall", 2.0), 1.5, 3.5),),
        load_s=6.0,
        rivals=(Rival("catching-up-in-loop", BURST),),
        ground=PLAIN,
        program="loop",
        outage=False,
        expectations=(flags_staleness, does_not_catch_up),
    ),
    Scenario(
        name="hogged-interpreter",
        number=18,
        claim="Nor does a thread that could not run for two seconds.",
        spells=(Spell(Commanded("hog", 2.0, (0, 1)), 1.5, 3.5),),
        load_s=6.0,
        rivals=(Rival("catching-up", BURST),),
        ground=PLAIN,
        outage=False,
        expectations=(flags_staleness, does_not_catch_up),
    ),
    Scenario(
        name="crowd",
        number=19,
        claim="Two hundred agents whose server is gone try about once a second each, and come back spread out.",
        spells=(Spell(Unplugged(), 2.0, 7.0),),
        load_s=10.0,
        rivals=(Rival("eager", CROWDING),),
        limit=Limit(20_000, 1.0, algorithm=FIXED_WINDOW),
        agents=50,
        demand=0.03,
        interval_s=1.0,
        program="loop",
        expectations=(does_not_crowd, comes_back_spread_out),
    ),
    Scenario(
        name="hostile-keys",
        number=22,
        claim="Keys of all kinds, and more of them than may be, harm neither the memory nor the other keys.",
        spells=(Spell(Commanded("flood", FLOOD, (0, 1)), 1.5, 2.5),),
        load_s=5.0,
        rivals=(Rival("unbounded", SWOLLEN),),
        more_keys=HOSTILE_KEYS,
        ground=PLAIN,
        outage=False,
        expectations=(counts_overflow,),
    ),
    Scenario(
        name="prefork",
        number=23,
        claim="Of a gunicorn that uses its application before it forks, each of the eight workers is a node.",
        spells=cut(None, 1.0, 2.5),
        load_s=5.0,
        rivals=(Rival("namesake", NAMELESS), Rival("orphaned", APART)),
        nodes=1,
        names_more=WORKERS,
        program="prefork",
        expectations=(has_names(WORKERS + 1),),
    ),
    Scenario(
        name="loops",
        number=24,
        claim="Sixty event loops one after the other, of two kinds, and one beside them: nothing is lost or leaked.",
        spells=tuple(flapping(Unplugged(), begin_s=1.0, end_s=4.0, period_s=1.0)),
        load_s=6.0,
        rivals=(Rival("first-loop", LOST, alone=True),),
        policy_name="strict",
        nodes=2,
        names_more=2,
        program="loops",
        mute=True,  # a loop that ends while it is cut off sends no last report
        outage=False,
        expectations=(leaks_nothing,),
        limit=ROOMY,
        demand=ROOMY_DEMAND,
    ),
    Scenario(
        name="threads",
        number=25,
        claim="Sixty-four threads that decide as fast as they can count exactly.",
        spells=cut(None, 1.0, 2.0),
        load_s=4.0,
        rivals=(Rival("unlocked", OVER_ADMISSION),),
        limit=Limit(3_000, 1.0, algorithm=FIXED_WINDOW),
        policy_name="strict",
        nodes=1,
        demand=0.001,
        program="threads",
    ),
)
