"""The command `reconverge reset`: forgets one key's use of the limits of a program, on all nodes."""

from __future__ import annotations

import asyncio
import json

import typer

from reconverge.agent.agent import Agent
from reconverge.cli.limits.declared import (
    ROUTED,
    FileOption,
    KeyArgument,
    LimitsOption,
    OwnNamespaceOption,
    advice_on_unknown,
    declared,
)
from reconverge.cli.shared.asking import PATIENCE_S, ask_hub, check_shared, wait_until_reported
from reconverge.cli.shared.options import HubOption, JsonOption
from reconverge.contracts.explaining import printable
from reconverge.limit.quotas import limit_of_quota
from reconverge.limiter.faces.rate_limiter import RateLimiter

INTERVAL_S = 0.1
FORGETS_NOTHING = "nothing can be forgotten"
RUNS_ON = "what is in progress counts until it ends"


def reset(
    key: KeyArgument,
    hub: HubOption,
    namespace: OwnNamespaceOption = None,
    limit: LimitsOption = None,
    file: FileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Forget what a key has used, on all nodes: of the limits of --file, or of each --limit.

    The command joins the fleet as a node for a moment, so declare limits exactly as the nodes do: if quotas differ, the
    smallest applies meanwhile. Limits on work in progress are left alone, with a note. For limits of contracts use
    `contracts reset`. Limits of which no node has reported the key are named; if there are no others, the status is 1.
    """
    check_shared(hub, f"{FORGETS_NOTHING} there")
    own = declared(limit, file, namespace, hub=hub, sync_interval=INTERVAL_S, min_sync_interval=INTERVAL_S)
    forgotten, left, unknown, unmet = list[str](), list[str](), list[str](), list[str]()
    totals = ask_hub(hub, own.namespace, lambda opened: opened.totals(), what=FORGETS_NOTHING)
    with own.agent as agent:
        agent.check(PATIENCE_S)
        before = agent.stats().exchanges
        for name, limiter in agent.limiters.items():
            if isinstance(limiter, RateLimiter) and totals.keys().isdisjoint(limiter.quotas):
                unknown.append(name)
            elif isinstance(limiter, RateLimiter):
                (forgotten if _is_met(agent, limiter, key) else unmet).append(name)
                limiter.control.reset(key)
            else:
                left.append(name)
        wait_until_reported(agent, before)
    if as_json:
        typer.echo(
            json.dumps({"key": key, "namespace": own.namespace, "reset": forgotten, "left_alone": left}, indent=2)
        )
    else:
        _tell(key, forgotten, left)
    for sentence in advice_on_unknown(unknown, map(limit_of_quota, totals)):
        typer.echo(f"reconverge: {sentence}", err=True)
    for name in unmet:
        declared_as = agent.limiters[name].limit
        apart = f"nodes that declare another window or algorithm count apart, so give the limit as they do; {ROUTED}"
        typer.echo(
            f"reconverge: no node has reported {printable(key)} lately for {name} by {declared_as}; {apart}", err=True
        )
    if (unknown or unmet) and not forgotten:
        raise typer.Exit(1)


def _is_met(agent: Agent, limiter: RateLimiter, key: str) -> bool:
    """Returns whether the hub knows the key by the limit as it is declared here, or keeps it elsewhere: as a ban."""
    usages = asyncio.run(agent.fleet_usages(limiter, key)).values()
    known = any(each.used or each.nodes or each.learning or not each.fleetwide for each in usages)
    return known or limiter.control.bans is not None


def _tell(key: str, forgotten: list[str], left: list[str]) -> None:
    typer.echo(f"{printable(key)}: forgotten on all nodes: {', '.join(forgotten) or 'nothing'}")
    for name in left:
        typer.echo(f"left alone: {name}; {RUNS_ON}", err=True)
