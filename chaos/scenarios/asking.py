"""Scenario no. 32: faults of the server while requests ask it."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from chaos.faults.fault import Killed, Stopped
from chaos.judge.asks import (
    STANDSTILL,
    WAITED_AGAIN,
    WAITED_LONG,
    asks_in_good_times,
    goes_on_by_shares,
    waits_for_no_silent_hub,
    waits_no_longer,
)
from chaos.judge.checker import OVER_ADMISSION
from chaos.scenarios.network import cut
from chaos.scenarios.scenario import Rival, Scenario, Spell
from reconverge.limit import FIXED_WINDOW, SLIDING_WINDOW, Limit

SCARCE: Final = Limit(10, 1.0, algorithm=FIXED_WINDOW)
"""A limit so small that most requests are in doubt."""
SCARCE_DEMAND: Final = 15.0
BEGIN_S, END_S = 2.0, 4.0
AWAY_S, BACK_S = 12.0, 55.0

STOPPED: Final = Scenario(
    name="ask-stopped",
    number=32,
    claim="Requests that ask a server that hangs wait once, for no longer than they may; strict stays strict.",
    spells=(Spell(Stopped(), BEGIN_S, END_S),),
    load_s=8.0,
    rivals=(
        Rival("insistent", WAITED_LONG, alone=True),
        Rival("trusting", OVER_ADMISSION, alone=True),
        Rival("oblivious", WAITED_AGAIN, alone=True),
    ),
    limit=SCARCE,
    demand=SCARCE_DEMAND,
    keys=20,
    policy_name="strict",
    program="asking",
    expectations=(waits_no_longer, waits_for_no_silent_hub, asks_in_good_times),
)

SCENARIOS: Final = (
    STOPPED,
    replace(
        STOPPED,
        name="ask-away",
        claim="A small quota goes on without the server, by sealed shares, and strict stays strict.",
        spells=(Spell(Stopped(), AWAY_S, BACK_S),),
        load_s=BACK_S + 10.0,
        rivals=(Rival("trusting", OVER_ADMISSION, alone=True), Rival("oblivious", STANDSTILL, alone=True)),
        limit=Limit(12, 4.0, algorithm=SLIDING_WINDOW),
        demand=0.5,
        keys=1,
        lease_s=60.0,
        expectations=(waits_no_longer, waits_for_no_silent_hub, asks_in_good_times, goes_on_by_shares),
    ),
    replace(
        STOPPED,
        name="ask-blackhole",
        claim="Requests that ask through wires on which nothing passes any more wait once, too.",
        spells=cut(None, BEGIN_S, END_S),
    ),
    replace(
        STOPPED,
        name="ask-killed",
        claim="Requests that ask a server that is killed, and comes back empty, are answered by memory at once.",
        spells=(Spell(Killed(), BEGIN_S, END_S),),
        # A hub that has lost its data decides no request until the last earlier lease is over, and two windows have
        # passed.
        lease_s=2.0,
        load_s=11.0,
    ),
)
