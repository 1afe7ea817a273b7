"""The commands `reconverge contracts explain` and `reset`: explain a customer's use in the whole fleet, or reset it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from math import isfinite
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer

from reconverge.agent.agent import Agent
from reconverge.agent.assembly import hasher_of
from reconverge.cli.contracts.at_hub import IdentityArgument
from reconverge.cli.contracts.files import read_file
from reconverge.cli.shared.asking import PATIENCE_S, ask_hub, secrets_as_said, wait_until_reported
from reconverge.cli.shared.options import HubOption, JsonOption, NamespaceOption, named_values
from reconverge.cli.shared.tables import Row, tell_table
from reconverge.clock import SECOND_NS, SystemClock
from reconverge.contracts.contracts import Contracts
from reconverge.contracts.explaining import (
    Explanation,
    LimitExplained,
    MissingFact,
    printable,
    table_of_explanation,
    written_wait,
)
from reconverge.contracts.fleet import HubExplainer
from reconverge.contracts.model import CUSTOMER, Document
from reconverge.contracts.store.hub_book import HubBook
from reconverge.contracts.store.index import minimum_as_said
from reconverge.contracts.terms import Term, terms_of
from reconverge.errors import InvalidSetting, asked
from reconverge.hub.hashing import hashing
from reconverge.hub.port import ContractStore, Hub
from reconverge.hub.registry import redacted

RUNS_ON: Final = "what is in progress counts until it ends"
INTERVAL_S: Final = 0.1
FactOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--fact", help="A further fact that limits count by, such as user=ada; may be repeated.", metavar="NAME=VALUE"
    ),
]
FileOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--file",
        help="The file of contracts, if the nodes read their contracts from a file and not from the hub.",
        metavar="FILE",
    ),
]


def explain(
    identity: IdentityArgument,
    hub: HubOption,
    namespace: NamespaceOption = "default",
    fact: FactOption = None,
    file: FileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Explain why a customer is refused or not: by which limit, its use, and when it can go on.

    The answer is for the whole fleet, as the nodes have reported to the hub; nothing is charged, and no node is needed.
    Its first line can be pasted into an answer to the customer. The contracts are those at the hub, or those of --file.
    """
    facts = _facts(fact or [])

    async def ask(opened: Hub) -> tuple[int, Explanation]:
        version, document = await _contracts_at(opened, hub, namespace, file)
        clock = SystemClock()
        hasher = hasher_of(None, namespace=namespace)
        reader = opened if hasher is None else hashing(opened, hasher)
        explainer = HubExplainer(reader, redacted(hub), namespace=namespace, document=document, clock=clock)
        return version, await explainer.explain(identity, **facts)

    try:
        version, explanation = ask_hub(hub, namespace, ask, what="no customers can be explained")
    except MissingFact as error:
        raise MissingFact(error.limit, error.fact, f"which no --fact names; add --fact {error.fact}=...") from None
    _refuse_unused(facts, [each.by for each in explanation.limits])
    if as_json:
        typer.echo(json.dumps({"version": version, **table_of_explanation(explanation)}, indent=2))
        return
    typer.echo(explanation.sentence)
    source = f"version {version} of the contracts" if file is None else str(file)
    typer.echo(f"\nplan {explanation.plan}, by {source}; used and left as the hub has it of all nodes")
    _print_limits(explanation.limits)


def reset(
    identity: IdentityArgument,
    hub: HubOption,
    namespace: NamespaceOption = "default",
    fact: FactOption = None,
    file: FileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Forget what a customer has used, on all nodes, and show its limits after that.

    A limit that counts by further facts, such as a user, is reset only for the values of --fact. A limit that counts
    customers together is reset for all of them. A limit with a fact that no --fact gives stays as it is, with a note.
    """
    facts = _facts(fact or [])

    async def read(opened: Hub) -> tuple[int, Document]:
        return await _contracts_at(opened, hub, namespace, file)

    version, document = ask_hub(hub, namespace, read, what="nothing can be forgotten")
    counted = terms_of(document, identity, SystemClock().wall_ns() / SECOND_NS).terms
    _refuse_unused(facts, [term.by for term in counted])
    forgotten, left = _divided(counted, facts)
    with Agent(hub, namespace=namespace, sync_interval=INTERVAL_S, min_sync_interval=INTERVAL_S) as agent:
        agent.check(PATIENCE_S)
        before = agent.stats().exchanges
        Contracts(agent, document).reset(identity, **facts)
        wait_until_reported(agent, before)
    if as_json:
        typer.echo(json.dumps({"version": version, "customer": identity, "reset": forgotten, "left_alone": left}))
        return
    typer.echo(
        f"{printable(identity)}: forgotten on all nodes: {', '.join(forgotten) or 'nothing, for it has no limits'}"
    )
    for name, missing in left.items():
        advice = f"say {' '.join(f'--fact {each}=...' for each in missing)}" if missing else RUNS_ON
        typer.echo(f"left alone: {name}; {advice}", err=True)


def _divided(counted: Sequence[Term], facts: dict[str, str]) -> tuple[list[str], dict[str, list[str]]]:
    """Returns the names of the limits that can be reset; and all others, by name, with the facts that `facts` lacks.

    A limit on work in progress is among the others, with an empty list: only the end of the work frees its slots.
    """
    left = dict[str, list[str]]()
    for term in counted:
        missing = [each for each in term.by if each not in (CUSTOMER, *facts)]
        if term.limit.slots or missing:
            left[term.name] = [] if term.limit.slots else missing
    return [term.name for term in counted if term.name not in left], left


async def _contracts_at(opened: Hub, url: str, namespace: str, file: Path | None) -> tuple[int, Document]:
    """Returns the version and the contracts: those of a file, with version 0, or those at the hub.

    Raises InvalidSetting.
    """
    if file is not None:
        return 0, read_file(file)
    if not isinstance(opened, ContractStore):
        raise InvalidSetting(
            "hub", redacted(url), "is a hub that keeps no contracts; name the file of the nodes with --file"
        )
    book = HubBook(opened, namespace, secrets_as_said(), minimum=minimum_as_said())
    version, document = await book.read()
    if not document.plans:
        problem = f"has no contracts at {redacted(url)}; publish some, or name those of the nodes with --file"
        raise InvalidSetting("namespace", namespace, problem)
    return version, document


def _facts(given: Sequence[str]) -> dict[str, str]:
    """Returns the values of `--fact` by the fact's name. Raises InvalidSetting."""
    facts = named_values("--fact", given, "a name and a value, as in user=ada")
    if CUSTOMER in facts:
        problem = "names the customer again, as the argument IDENTITY does; leave it out"
        raise InvalidSetting("--fact", f"{CUSTOMER}={facts[CUSTOMER]}", problem)
    return facts


def _refuse_unused(facts: Iterable[str], counted: Sequence[Sequence[str]]) -> None:
    """Raises InvalidSetting for a fact by which no limit of the customer counts."""
    known = sorted({fact for by in counted for fact in by if fact != CUSTOMER})
    for name in facts:
        if name not in known:
            counted_by = (
                f"its limits count by {', '.join(known)}" if known else "its limits count by the customer alone"
            )
            raise InvalidSetting(
                "--fact", name, f"makes no difference to this customer: {counted_by}{asked(name, known)}"
            )


def _print_limits(limits: Sequence[LimitExplained]) -> None:
    rows = list[Row]()
    for each in limits:
        name = f"{each.name} (former)" if each.former else each.name
        in_force = "" if each.in_force == each.at_once else f" ({each.in_force} of {each.at_once} in force)"
        wait = "now" if each.wait_s <= 0 else written_wait(each.wait_s) if isfinite(each.wait_s) else "not known"
        per = f"in {written_wait(each.window_s)}" if each.window_s else "at once"
        quota = f"{each.quota} {per}{in_force}"
        refill, by = written_wait(each.refill_s) if each.refill_s else "none", ", ".join(each.by)
        rows.append((name, quota, str(each.used), str(each.remaining), str(each.lines), refill, wait, each.switch, by))
    tell_table(("limit", "quota", "used", "left", "held", "refill", "go on in", "switch", "by"), rows)
