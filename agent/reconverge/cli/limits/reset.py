"""The command `reconverge reset`: forgets one key's use of the limits of a program, on all nodes."""

from __future__ import annotations

import json

import typer

from reconverge.cli.limits.declared import FileOption, KeyArgument, LimitsOption, OwnNamespaceOption, declared
from reconverge.cli.shared.asking import PATIENCE_S, check_shared, wait_until_reported
from reconverge.cli.shared.options import HubOption, JsonOption
from reconverge.contracts.explaining import printable
from reconverge.limiter.faces.rate_limiter import RateLimiter

INTERVAL_S = 0.1
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
    `contracts reset`.
    """
    check_shared(hub, "nothing can be forgotten there")
    own = declared(limit, file, namespace, hub=hub, sync_interval=INTERVAL_S, min_sync_interval=INTERVAL_S)
    forgotten, left = list[str](), list[str]()
    with own.agent as agent:
        agent.check(PATIENCE_S)
        before = agent.stats().exchanges
        for name, limiter in agent.limiters.items():
            if isinstance(limiter, RateLimiter):
                limiter.control.reset(key)
                forgotten.append(name)
            else:
                left.append(name)
        wait_until_reported(agent, before)
    if as_json:
        typer.echo(
            json.dumps({"key": key, "namespace": own.namespace, "reset": forgotten, "left_alone": left}, indent=2)
        )
        return
    typer.echo(f"{printable(key)}: forgotten on all nodes: {', '.join(forgotten) or 'nothing'}")
    for name in left:
        typer.echo(f"left alone: {name}; {RUNS_ON}", err=True)
