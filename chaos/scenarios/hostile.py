"""Scenarios nos. 27 to 31, which must not hang a process, fill its memory, deceive it, or lock customers out."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from chaos.faults.attacks import Flooded, Lied, NodeCrashed, ObjectLied
from chaos.faults.fault import Commanded, ServerCommanded
from chaos.faults.nonsense import BYTES, COUNTS, ROWS, TIME, TYPES
from chaos.fleet.plan import GEVENT
from chaos.judge.checker import APART, HUNG, OVER_ADMISSION, SWOLLEN
from chaos.judge.hardness import (
    LOCKED_OUT,
    STARVED,
    UNANSWERED,
    admits_newcomers,
    answers_every_request,
    counts_are_consistent,
    goes_on_after_crashes,
    loses_little,
    runs_once,
    says_how_it_is,
    serves_customers,
    stays_small,
    was_lied_to,
    was_stormed,
)
from chaos.names import LIES, PLAIN
from chaos.scenarios.scenario import ROOMY, ROOMY_DEMAND, TIGHT, Rival, Scenario, Spell
from reconverge.limit import FIXED_WINDOW, Limit

KEYS_PER_S: Final = 20_000
FLOOD_S: Final = 8.0
FLOOD_KEYS_MAX: Final = 20_000
NODE_MB: Final = 40
"""The most by which a flood may make a node grow, in MB, if it may keep twenty thousand keys."""
HUB_MB: Final = 10
"""The most by which a flood of 160,000 keys may make the hub grow, in MB."""
SMALL_HUB: Final = ServerCommanded(("CONFIG SET maxmemory 5mb",))
SERVED: Final = 0.99
NEWCOMERS: Final = 0.95

CRASHES: Final = 7
CRASH_REQUESTS: Final = 20
HELD_FRACTION: Final = 0.05
HOURLY: Final = Limit(1000, 3600.0, algorithm=FIXED_WINDOW)
CRASH_LEASE_S: Final = 2.0

STORM_S: Final = 30.0

FLOOD: Final = Scenario(
    name="key-flood",
    number=27,
    claim="A flood of distinct keys costs other limits' customers nothing, newcomers little, and bounded memory.",
    spells=(Spell(Flooded(KEYS_PER_S, (0,)), 3.0, 3.0 + FLOOD_S),),
    load_s=14.0,
    rivals=(Rival("key-per-key", SWOLLEN, alone=True), Rival("uncapped", SWOLLEN, alone=True)),
    limit=ROOMY,
    demand=ROOMY_DEMAND,
    keys=20,
    nodes=3,
    flooded=(Limit(10, 1.0, algorithm=FIXED_WINDOW), Limit(10, 60.0, algorithm=FIXED_WINDOW)),
    keys_max=FLOOD_KEYS_MAX,
    ground=PLAIN,
    outage=False,
    expectations=(serves_customers(SERVED), admits_newcomers(NEWCOMERS), stays_small(node_mb=NODE_MB, hub_mb=HUB_MB)),
)

NONSENSE: Final = Scenario(
    name="nonsense-hub",
    number=28,
    claim="A hub answers nonsense, of five kinds; nodes say so, believe nothing of it, and go on when it is over.",
    spells=(
        Spell(Lied((TIME,)), 1.0, 2.5),
        Spell(Lied((COUNTS,)), 4.0, 5.5),
        Spell(Lied((ROWS,)), 7.0, 8.5),
        Spell(Lied((TYPES,)), 10.0, 11.5),
        Spell(Lied((BYTES,)), 13.0, 14.5),
        Spell(Lied(), 16.0, 17.5),
    ),
    load_s=20.0,
    rivals=(Rival("believing", OVER_ADMISSION), Rival("mortal", APART)),
    nodes=3,
    ground=LIES,
    outage=False,
    expectations=(was_lied_to, says_how_it_is),
)

SCENARIOS: Final = (
    FLOOD,
    replace(
        FLOOD,
        name="key-flood-small-hub",
        claim="The same with a Redis that has room for a part of these keys: it serves the customers it knows.",
        spells=(Spell(SMALL_HUB, 0.5, 0.5, shown=False), *FLOOD.spells),
        lease_s=2.0,
        rivals=(Rival("key-per-key", STARVED, alone=True),),
    ),
    NONSENSE,
    replace(
        NONSENSE,
        name="nonsense-hub-object",
        claim="The same from a hub object that is not ours: it answers other types, raises, hangs.",
        spells=(Spell(ObjectLied(), 1.0, 9.0),),
        load_s=12.0,
        ground=PLAIN,
        third_party=True,
    ),
    Scenario(
        name="gevent-worker",
        number=29,
        claim="A worker of gevent under gunicorn answers every request of every burst, and counts exactly.",
        spells=(),
        load_s=6.0,
        rivals=(Rival("lazy-under-lock", UNANSWERED, alone=True),),
        nodes=1,
        names_more=1,
        limit=TIGHT,
        demand=0.4,
        ground=PLAIN,
        program=GEVENT,
        outage=False,
        expectations=(answers_every_request,),
    ),
    Scenario(
        name="signal-storm",
        number=30,
        claim="Signal handlers decide and raise at any moment: nothing hangs; counts and bound hold, in both kernels.",
        spells=(),
        load_s=STORM_S,
        rivals=(Rival("plain-lock", HUNG, alone=True),),
        nodes=2,
        pure_nodes=(1,),
        limit=TIGHT,
        demand=0.01,
        ground=PLAIN,
        program="storm",
        outage=False,
        expectations=(counts_are_consistent, runs_once, was_stormed(100)),
    ),
    Scenario(
        name="crash-loop",
        number=31,
        claim="A lone worker is killed after twenty requests, seven times; its customer keeps most of the hour.",
        spells=(
            *(Spell(NodeCrashed(0, CRASH_REQUESTS), 0.5 + 0.1 * at, 0.6 + 0.1 * at) for at in range(CRASHES)),
            Spell(Commanded("ask", 1500), 30.0, 30.0, shown=False),
        ),
        load_s=40.0,
        rivals=(Rival("reserving", LOCKED_OUT),),
        nodes=1,
        names_more=CRASHES,
        limit=HOURLY,
        demand=0.02,
        lease_s=CRASH_LEASE_S,
        ground=PLAIN,
        outage=False,
        expectations=(loses_little(HELD_FRACTION), goes_on_after_crashes),
    ),
    Scenario(
        name="crash-loop-fleet",
        number=31,
        claim="The same with four workers, each of which is killed twice.",
        spells=(
            *(Spell(NodeCrashed(at % 4, CRASH_REQUESTS), 0.5 + 0.1 * at, 0.6 + 0.1 * at) for at in range(8)),
            Spell(Commanded("ask", 500), 30.0, 30.0, shown=False),
        ),
        load_s=40.0,
        rivals=(Rival("reserving", LOCKED_OUT),),
        nodes=4,
        names_more=8,
        limit=HOURLY,
        demand=0.04,
        lease_s=CRASH_LEASE_S,
        ground=PLAIN,
        outage=False,
        expectations=(loses_little(HELD_FRACTION), goes_on_after_crashes),
    ),
)


def storm_for(seconds: float) -> Scenario:
    """Returns the storm of signals, which lasts for `length_s` seconds."""
    (storm,) = (scenario for scenario in SCENARIOS if scenario.name == "signal-storm")
    return replace(storm, load_s=seconds)
