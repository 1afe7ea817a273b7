"""Scenarios nos. 13, 15, 20 and 21: more than one Redis, or none, with TLS and few rights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from chaos.deployments.cluster import MASTERS, master_of, shards_of
from chaos.deployments.deployment import BROKER, CLUSTER, REDIS, SENTINEL
from chaos.faults.fault import Clashed, Fed, Killed, LinkCut, MasterKilled, MasterLost, Ordered, SlotMoved, Stopped
from chaos.judge.checker import DOUBLED, ESCAPED, LOST, OVER_ADMISSION
from chaos.judge.expectations import (
    HELD_UP,
    OUTDATED,
    holds_up_no_other,
    is_made_up_for_by_one_report,
    is_up_to_date,
    keeps_settings,
    rejects_what_makes_no_sense,
)
from chaos.names import PLAIN
from chaos.scenarios.scenario import SLOTS, Rival, Scenario, Spell
from reconverge.limit import FIXED_WINDOW, Limit

MOVED: Final = (0, 2)
"""The shards whose slots move to the next master; for a second each slot is half moved."""
LOST_MASTER: Final = 2
LOST_SHARDS: Final = shards_of(LOST_MASTER) - {*MOVED} | {
    shard for shard in MOVED if (master_of(shard) + 1) % MASTERS == LOST_MASTER
}
KILLED_S: Final = 3.0
BROKERS_TIMEOUT_S: Final = 1.0
UNREPLICATED: Final = 50
POISON: Final = 10_000

SCENARIOS: Final = (
    Scenario(
        name="sentinel-failover",
        number=13,
        claim="Sentinels name a replica that has missed fifty exchanges; one report of each node makes up for them.",
        spells=(Spell(LinkCut(), 1.0, 1.0), Spell(MasterLost(), 3.0, 3.5)),
        load_s=8.0,
        rivals=(Rival("requeueing", LOST), Rival("dropping", LOST)),
        deployment=SENTINEL,
        guarded=True,
        ground=PLAIN,
        outage=False,
        beyond=200,
        beyond_why="grants lost by a failover to a lagging replica",
        slots_beyond=SLOTS,
        expectations=(is_made_up_for_by_one_report(UNREPLICATED),),
    ),
    Scenario(
        name="reshard-and-kill",
        number=15,
        claim="Slots move under load and a master is killed; all other shards stay younger than two intervals.",
        spells=(
            *(
                Spell(SlotMoved(shard), 2.0 + 2 * at, 3.0 + 2 * at, shards=frozenset({shard}), name="a slot moves")
                for at, shard in enumerate(MOVED)
            ),
            Spell(MasterKilled(LOST_MASTER), 7.0, 7.0 + KILLED_S, shards=LOST_SHARDS, name="a master is away"),
        ),
        load_s=16.0,
        rivals=(Rival("requeueing", HELD_UP), Rival("dropping", LOST)),
        deployment=CLUSTER,
        guarded=True,
        limit=Limit(20, 1.0, algorithm=FIXED_WINDOW),
        keys=24,
        demand=36.0,
        interval_s=0.2,
        ground=PLAIN,
        outage=False,
        expectations=(holds_up_no_other,),
    ),
    Scenario(
        name="broker-away",
        number=20,
        claim="A broker dies, hangs, forgets all, and lets others take its members' names; published settings stay.",
        spells=(
            Spell(Ordered(), 1.0, 1.0, shown=False),
            Spell(Killed(), 3.0, 4.5),
            Spell(Stopped(), 11.0, 13.0),
            Spell(Clashed(), 19.0, 20.0),
            Spell(Killed(), 27.5, 28.0),
        ),
        load_s=26.0,
        rivals=(
            Rival("merged", OVER_ADMISSION),
            Rival("requeueing", DOUBLED),
            Rival("dropping", LOST),
            Rival("namesake", OUTDATED),
        ),
        deployment=BROKER,
        guarded=True,
        timeout_s=BROKERS_TIMEOUT_S,
        ground=PLAIN,
        outage=False,
        obeys=True,
        expectations=(is_up_to_date, keeps_settings),
    ),
    Scenario(
        name="poison",
        number=21,
        claim="Ten thousand messages that make no sense, some of another age, change nothing, and all are counted.",
        spells=(Spell(Fed(POISON), 1.0, 1.0),),
        load_s=14.0,
        rivals=(Rival("gullible", ESCAPED),),
        deployment=BROKER,
        guarded=True,
        timeout_s=BROKERS_TIMEOUT_S,
        ground=PLAIN,
        outage=False,
        expectations=(rejects_what_makes_no_sense,),
    ),
)

THERE: Final = {
    REDIS: "over TLS, as a user with few rights",
    CLUSTER: "on a cluster",
    BROKER: "at a broker of MQTT",
}
AGAIN: Final = (
    ("partition-one", REDIS),
    ("partition-one", BROKER),
    ("partition-all", BROKER),
    ("replies-lost", BROKER),
    ("requests-lost", BROKER),
    ("flapping", BROKER),
    ("killed-empty", CLUSTER),
    ("killed-quiet", CLUSTER),
)
"""The scenarios that also run on other topologies; only servers that nodes find at one address have wires."""
ON_BROKERS: Final = frozenset({"merged", "dropping", "requeueing"})
"""The rivals that can meet at a broker; on other topologies those that need a client for one server are left out."""


def named_on(name: str, deployment: str) -> str:
    """Returns the name of a scenario on another deployment."""
    return f"{name}-on-{deployment}" if deployment != REDIS else f"{name}-guarded"


def again(known: Iterable[Scenario]) -> Iterator[Scenario]:
    """Yields the same scenarios on other topologies."""
    by_name = {scenario.name: scenario for scenario in known}
    for name, deployment in AGAIN:
        scenario = by_name[name]
        able = ON_BROKERS if deployment != REDIS else {rival.name for rival in scenario.rivals}
        yield replace(
            scenario,
            name=named_on(name, deployment),
            claim=f"{scenario.claim.removesuffix('.')}, also {THERE[deployment]}.",
            rivals=tuple(rival for rival in scenario.rivals if rival.name in able and not rival.alone),
            deployment=deployment,
            guarded=True,
            ground=scenario.ground if deployment in (REDIS, BROKER) else PLAIN,
            timeout_s=BROKERS_TIMEOUT_S if deployment == BROKER else scenario.timeout_s,
        )
