"""Scenarios nos. 1 to 11: faults between nodes and server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from chaos.faults.fault import Dropped, Fault, Lossy, Poisoned, Reset, Stopped, Unplugged
from chaos.faults.proxy import Toxic
from chaos.judge.checker import DOUBLED, LOST, OVER_ADMISSION, TOUCHED, WAITED
from chaos.judge.expectations import UNNOTICED, flags_staleness, notices
from chaos.judge.slots import IN_PROGRESS
from chaos.names import NETWORK, Nodes
from chaos.scenarios.scenario import LASTING, LASTING_DEMAND, ROOMY, ROOMY_DEMAND, Rival, Scenario, Spell
from reconverge.limit import FIXED_WINDOW, SLIDING_WINDOW, TOKEN_BUCKET, Limit

UP, DOWN = "upstream", "downstream"
SILENCE: Final = {"timeout": 0}
"""The setting of a toxic that lets nothing pass, while connections stay open."""
ZOMBIE_MS: Final = 100_000_000
"""A delay longer than any run: held data arrive when the toxic is removed."""
HANDSHAKE_BYTES: Final = 330
BATCH_BYTES: Final = 15_000


def cut(who: Nodes, start_s: float, end_s: float) -> tuple[Spell, ...]:
    """Returns the toxic by which nothing passes on these wires, in either direction."""
    return tuple(Spell(Poisoned(Toxic("timeout", stream, SILENCE), who), start_s, end_s) for stream in (UP, DOWN))


def flapping(fault: Fault, *, begin_s: float, end_s: float, period_s: float) -> Iterator[Spell]:
    """Yields a fault in the first half of each period."""
    for number in range(round((end_s - begin_s) / period_s)):
        start_s = begin_s + number * period_s
        yield Spell(fault, start_s, start_s + period_s / 2)


def spell(kind: str, stream: str, start_s: float, end_s: float, **attributes: int) -> Spell:
    """Returns a toxic on all wires for a while."""
    return Spell(Poisoned(Toxic(kind, stream, attributes)), start_s, end_s)


SCENARIOS: Final = (
    Scenario(
        name="partition-one",
        number=1,
        claim="A node that is cut off goes on within its line, and the others within theirs.",
        spells=cut((0,), 1.0, 3.0),
        load_s=5.0,
        rivals=(Rival("merged", OVER_ADMISSION),),
        outage=False,
    ),
    Scenario(
        name="partition-half",
        number=1,
        claim="Strict means never above the limit, also for two halves that cannot meet; here packets are dropped.",
        spells=(Spell(Dropped((0, 1)), 1.0, 3.0),),
        load_s=5.0,
        rivals=(Rival("merged", OVER_ADMISSION),),
        limit=Limit(200, 1.0, algorithm=SLIDING_WINDOW),
        policy_name="strict",
        ground=NETWORK,
        outage=False,
    ),
    Scenario(
        name="partition-all",
        number=1,
        claim="When nobody reaches the server, all decide as before from memory, and nobody waits.",
        spells=cut(None, 1.0, 3.0),
        load_s=5.0,
        rivals=(
            Rival("merged", OVER_ADMISSION),
            Rival("asking", TOUCHED, alone=True),
            Rival("locking", WAITED, alone=True),
        ),
    ),
    Scenario(
        name="partition-quiet",
        number=1,
        claim="What was admitted while all were cut off is known to all soon after, though nobody asks any more.",
        spells=cut(None, 0.5, 3.0),
        load_s=1.5,
        rivals=(Rival("merged", OVER_ADMISSION), Rival("dropping", LOST)),
        limit=LASTING,
        demand=LASTING_DEMAND,
        keys=20,
    ),
    Scenario(
        name="replies-lost",
        number=2,
        claim="What was heard and not answered is said again, and counted once.",
        spells=(spell("timeout", DOWN, 1.0, 3.0, timeout=0),),
        load_s=5.0,
        rivals=(Rival("requeueing", DOUBLED), Rival("retrying", DOUBLED)),
        limit=ROOMY,
        demand=ROOMY_DEMAND,
    ),
    Scenario(
        name="recalls-lost",
        number=2,
        claim="A node that does not hear that others lack what it holds uses it, and no other node does.",
        spells=(Spell(Poisoned(Toxic("timeout", DOWN, SILENCE), (0,)), 1.0, 6.0),),
        load_s=7.0,
        rivals=(Rival("recalling", OVER_ADMISSION),),
        limit=Limit(2000, 3600.0, algorithm=FIXED_WINDOW),
        policy_name="strict",
        demand=0.2,
        outage=False,
    ),
    Scenario(
        name="requests-lost",
        number=3,
        claim="What was not heard is said again, and not lost.",
        spells=(spell("timeout", UP, 1.0, 3.0, timeout=0),),
        load_s=5.0,
        rivals=(Rival("dropping", LOST),),
        limit=ROOMY,
        demand=ROOMY_DEMAND,
    ),
    Scenario(
        name="zombies",
        number=4,
        claim="What arrives long after its sender has given up changes nothing, not even behind newer news.",
        spells=(
            Spell(Stopped(), 1.0, 3.0),
            # Only half of the connections are affected: nodes get through on others, and held data arrive after that.
            Spell(Poisoned(Toxic("latency", UP, {"latency": ZOMBIE_MS}, toxicity=0.5)), 4.0, 7.5),
        ),
        load_s=6.0,
        rivals=(Rival("requeueing", DOUBLED),),
        limit=Limit(5000, 3600.0, algorithm=FIXED_WINDOW),
        demand=0.1,
        outage=False,
    ),
    Scenario(
        name="replies-cut",
        number=5,
        claim="A connection that ends in the middle of an answer makes nothing count twice.",
        spells=(spell("limit_data", DOWN, 1.0, 4.0, bytes=HANDSHAKE_BYTES),),
        load_s=6.0,
        rivals=(Rival("requeueing", DOUBLED), Rival("retrying", DOUBLED), Rival("reconnecting", IN_PROGRESS)),
        outage=False,
        limit=ROOMY,
        demand=ROOMY_DEMAND,
    ),
    Scenario(
        name="batches-cut",
        number=6,
        claim="Of a batch that is cut in the middle nothing is merged; twenty times, and by resets another twenty.",
        spells=(
            spell("limit_data", UP, 1.0, 3.0, bytes=BATCH_BYTES),
            *(Spell(Reset(), 3.5 + number / 8, 3.5 + number / 8) for number in range(20)),
        ),
        load_s=7.5,
        rivals=(Rival("requeueing", DOUBLED),),
        keys=300,
        demand=6.0,
        outage=False,
    ),
    Scenario(
        name="flapping",
        number=7,
        claim="A network that comes and goes, ten times a second and once a second, loses and doubles nothing.",
        spells=(
            *flapping(Unplugged(), begin_s=1.0, end_s=4.0, period_s=0.1),
            *flapping(Unplugged(), begin_s=4.5, end_s=8.5, period_s=1.0),
        ),
        load_s=10.0,
        rivals=(Rival("dropping", LOST),),
        limit=Limit(200, 1.0, algorithm=TOKEN_BUCKET, burst=100),
        outage=False,
    ),
    Scenario(
        name="slow-link",
        number=8,
        claim="On a link that is too slow a node makes no storm of exchanges, and says how old its knowledge is.",
        spells=(
            spell("latency", DOWN, 1.0, 3.0, latency=120, jitter=100),
            spell("latency", DOWN, 3.0, 5.0, latency=450, jitter=100),
            spell("bandwidth", UP, 3.0, 5.0, rate=1),
        ),
        load_s=7.0,
        rivals=(Rival("requeueing", DOUBLED),),
        keys=5,
        expectations=(flags_staleness,),
    ),
    Scenario(
        name="half-open",
        number=9,
        claim="A connection whose other end has silently gone is given up after the timeout of an exchange.",
        spells=(Spell(Dropped(), 1.0, 6.0),),
        load_s=8.0,
        rivals=(Rival("patient", UNNOTICED),),
        ground=NETWORK,
        expectations=(notices, flags_staleness),
    ),
    Scenario(
        name="packet-loss",
        number=10,
        claim="One, ten and thirty packets of a hundred are lost, and no count.",
        spells=(Spell(Lossy(1), 1.0, 3.5), Spell(Lossy(10), 3.5, 6.0), Spell(Lossy(30), 6.0, 9.0)),
        load_s=11.0,
        rivals=(Rival("requeueing", DOUBLED), Rival("dropping", LOST)),
        limit=Limit(200, 1.0, algorithm=SLIDING_WINDOW),
        ground=NETWORK,
        outage=False,
    ),
    Scenario(
        name="slices",
        number=11,
        claim="What arrives byte by byte is understood all the same.",
        spells=tuple(
            spell("slicer", stream, 1.0, 3.0, average_size=1, size_variation=0, delay=50) for stream in (UP, DOWN)
        ),
        load_s=5.0,
        rivals=(Rival("one-gulp", DOUBLED),),
        outage=False,
    ),
)
