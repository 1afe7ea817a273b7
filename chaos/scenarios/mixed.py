"""Scenario no. 26: a random mix of all faults."""

from __future__ import annotations

from random import Random
from typing import Final

from chaos.faults.fault import (
    Busy,
    Fault,
    Killed,
    NodeEnded,
    NodeKilled,
    Poisoned,
    Reset,
    ServerCommanded,
    Stopped,
    Unplugged,
)
from chaos.faults.proxy import Toxic
from chaos.judge.checker import DOUBLED, LOST, OVER_ADMISSION
from chaos.names import Nodes
from chaos.scenarios.network import BATCH_BYTES, DOWN, HANDSHAKE_BYTES, SILENCE, UP, ZOMBIE_MS
from chaos.scenarios.scenario import Rival, Scenario, Spell

MIX_S: Final = 60.0
LAST_S: Final = 3.0
"""The seconds of load after the last fault."""
NODES: Final = 4
LEASE_S: Final = 900.0
"""A lease so long that none ends: the use of a killed node is then all that it held."""


def draw_mix(seed: int, *, length_s: float = MIX_S) -> Scenario:
    """Draws faults on the wires and the server, one after the other, and beside them faults of nodes.

    Faults against which nothing is promised are not drawn: nodes are killed with even seeds, and the server's data lost
    with odd ones, because what only the hub remembers is gone if both happen.
    """
    random = Random(f"mix {seed}")
    spells: list[Spell] = []
    now_s = 1.0
    while now_s < length_s - LAST_S:
        lasts_s = random.uniform(0.2, 2.0)
        spells.append(Spell(_network_fault(random, lose_data=seed % 2 == 1), now_s, now_s + lasts_s))
        now_s += lasts_s + random.uniform(0.1, 1.5)
    if seed % 2 == 0:
        now_s = 2.0
        while now_s < length_s - LAST_S:
            node = random.randrange(NODES)
            fault: Fault = NodeKilled(node) if random.random() < 0.5 else NodeEnded(node)
            spells.append(Spell(fault, now_s, now_s + 0.3, shown=False))
            now_s += random.uniform(2.0, 5.0)
    return Scenario(
        name="mix",
        number=26,
        claim="Whatever goes wrong, in any order, strict stays strict and the counts are exact.",
        spells=tuple(spells),
        load_s=length_s,
        rivals=(
            Rival("merged", OVER_ADMISSION),
            Rival("requeueing", LOST if any(isinstance(spell.fault, Killed) for spell in spells) else DOUBLED),
            Rival("dropping", LOST),
        ),
        policy_name="strict",
        demand=2.0,
        keys=3,
        nodes=NODES,
        lease_s=LEASE_S,
        outage=False,
    )


def _network_fault(random: Random, *, lose_data: bool) -> Fault:
    who: Nodes = random.choice([None, None, (0,), (1, 2), (0, 1, 3)])
    faults: list[Fault] = [
        Poisoned(Toxic("timeout", UP, SILENCE), who),
        Poisoned(Toxic("timeout", DOWN, SILENCE), who),
        Poisoned(Toxic("latency", UP, {"latency": ZOMBIE_MS}), who),
        Poisoned(Toxic("latency", DOWN, {"latency": 120, "jitter": 100}), who),
        Poisoned(Toxic("limit_data", DOWN, {"bytes": HANDSHAKE_BYTES}), who),
        Poisoned(Toxic("limit_data", UP, {"bytes": BATCH_BYTES}), who),
        Poisoned(Toxic("bandwidth", UP, {"rate": 1}), who),
        Poisoned(Toxic("slicer", DOWN, {"average_size": 1, "size_variation": 0, "delay": 50}), who),
        Unplugged(who),
        Reset(who),
        Stopped(),
        Busy(),
        ServerCommanded(("CONFIG SET maxmemory 1",), ("CONFIG SET maxmemory 0",)),
        ServerCommanded(("REPLICAOF 127.0.0.1 1",), ("REPLICAOF NO ONE",)),
        ServerCommanded(("SCRIPT FLUSH",)),
    ]
    return random.choice([*faults, Killed(), Killed()] if lose_data else faults)
