"""Scenarios nos. 12 to 16: faults of the server and of clocks."""

from __future__ import annotations

from typing import Final

from chaos.faults.fault import Ahead, Busy, Commanded, FailedOver, Fault, Killed, Lagging, ServerCommanded, Unsaved
from chaos.judge.checker import LOST, OVER_ADMISSION
from chaos.judge.expectations import admits_all_the_time, tells_kinds
from chaos.names import BY_MACHINE, PLAIN
from chaos.scenarios.scenario import LASTING, LASTING_DEMAND, ROOMY, ROOMY_DEMAND, SLOTS, Rival, Scenario, Spell

HOUR_S: Final = 3600
QUIET_S: Final = 8.5
"""The seconds after which the nodes have reported everything, and repeat it seldom."""
EDGE: Final = 6
"""The number of decisions at the edges of windows that nodes and the machine's clock put on different sides."""
OTHERS_END: Final = "CLIENT KILL TYPE normal SKIPME yes"
"""A command that makes all connected clients log in again."""

ERRORS: Final[tuple[tuple[str, Fault], ...]] = (
    ("no-replicas", ServerCommanded(("CONFIG SET min-replicas-to-write 1",), ("CONFIG SET min-replicas-to-write 0",))),
    ("read-only", ServerCommanded(("REPLICAOF 127.0.0.1 1",), ("REPLICAOF NO ONE",))),
    (
        "master-down",
        ServerCommanded(
            ("CONFIG SET replica-serve-stale-data no", "REPLICAOF 127.0.0.1 1"),
            ("REPLICAOF NO ONE", "CONFIG SET replica-serve-stale-data yes"),
        ),
    ),
    ("misconfigured", Unsaved()),
    ("busy", Busy()),
    ("permission", ServerCommanded(("ACL SETUSER default -eval -evalsha -hincrby",), ("ACL SETUSER default +@all",))),
    (
        "auth",
        ServerCommanded(
            ("ACL SETUSER default resetpass >another", OTHERS_END), ("ACL SETUSER default resetpass >{secret}",)
        ),
    ),
    ("too-many-clients", ServerCommanded(("CONFIG SET maxclients 1", OTHERS_END), ("CONFIG SET maxclients 10000",))),
)
"""The kinds of failures, and the faults that cause them."""


def _one_after_the_other() -> tuple[Spell, ...]:
    spells = [Spell(fault, 1.0 + 1.2 * number, 1.7 + 1.2 * number) for number, (_, fault) in enumerate(ERRORS)]
    return (*spells, Spell(ServerCommanded(("SCRIPT FLUSH",)), 12.0, 12.0, shown=False))


SCENARIOS: Final = (
    Scenario(
        name="killed-empty",
        number=12,
        claim="The server is killed and comes back empty; the nodes tell it everything again.",
        spells=(Spell(Killed(), 1.5, 2.3),),
        load_s=5.0,
        rivals=(Rival("requeueing", LOST), Rival("dropping", LOST), Rival("retrying", LOST)),
    ),
    Scenario(
        name="killed-quiet",
        number=12,
        claim="The server comes back empty long after the last request; all that it had known is reported to it again.",
        spells=(Spell(Killed(), QUIET_S, QUIET_S + 0.6),),
        load_s=1.5,
        rivals=(Rival("requeueing", LOST), Rival("retrying", LOST)),
        limit=LASTING,
        demand=LASTING_DEMAND,
        keys=20,
        outage=False,
    ),
    Scenario(
        name="failover",
        number=13,
        claim="A replica takes over that lags behind; what it does not know is reported to it.",
        spells=(Spell(Lagging(1500), 1.0, 2.6), Spell(FailedOver(), 2.5, 2.5)),
        load_s=5.0,
        rivals=(Rival("requeueing", LOST), Rival("dropping", LOST)),
        replica=True,
        outage=False,
        beyond=200,
        beyond_why="grants lost by a failover to a lagging replica",
        slots_beyond=SLOTS,
    ),
    Scenario(
        name="error-replies",
        number=14,
        claim="Whatever error the server answers, it has its own kind, and nothing is lost or doubled.",
        spells=_one_after_the_other(),
        load_s=14.0,
        rivals=(Rival("dropping", LOST), Rival("retrying", LOST)),
        outage=False,
        expectations=(tells_kinds(*(kind for kind, _ in ERRORS)),),
        limit=ROOMY,
        demand=ROOMY_DEMAND,
    ),
    Scenario(
        name="clocks-of-nodes",
        number=16,
        claim="Nodes whose wall clocks jump by an hour, there and back, go on in the windows of the server.",
        spells=(
            Spell(Commanded("jump", HOUR_S, (0, 1)), 1.5, 3.5),
            Spell(Commanded("jump", -2 * HOUR_S, (0, 1)), 3.5, 5.0),
            Spell(Commanded("jump", HOUR_S, (0, 1)), 5.0, 5.0),
        ),
        load_s=6.5,
        rivals=(Rival("dropping", OVER_ADMISSION),),
        ground=PLAIN,
        reckoning=BY_MACHINE,
        outage=False,
        beyond=EDGE,
        beyond_why="clock error at window edges",
        expectations=(admits_all_the_time,),
    ),
    Scenario(
        name="clock-of-server",
        number=16,
        claim="The server's clock jumps by an hour, and all that can expire is gone; then back.",
        spells=(Spell(Ahead(HOUR_S), 1.5, 3.5),),
        load_s=6.5,
        rivals=(Rival("expiring", LOST),),
        ground=PLAIN,
        shifted=True,
        reckoning=BY_MACHINE,
        outage=False,
        beyond=200 + EDGE,
        beyond_why="a jump of the hub's clock, clock error at window edges",
        slots_beyond=SLOTS,
        expectations=(admits_all_the_time,),
    ),
)
