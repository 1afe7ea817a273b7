"""The command `reconverge contracts plan`: shows which requests of a recording a change of contracts would refuse."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer
from rich.console import Console

from reconverge.cli.contracts.files import read_file
from reconverge.cli.contracts.plan_figures import (
    Shown,
    effects_table,
    heading,
    left_out,
    limits_table,
    totals_table,
    verdict,
)
from reconverge.cli.contracts.plan_options import (
    SETTLE_AFTER_S,
    check_used,
    facts_in,
    most_refused,
    of_limits,
    settle_after_ns,
    when_it_began_s,
)
from reconverge.cli.contracts.recording import RecordingColumns, Span, requests_in, span_of
from reconverge.cli.shared.options import JsonOption
from reconverge.cli.shared.terminal import progress_shown
from reconverge.clock import SECOND_NS
from reconverge.contracts.model import Document
from reconverge.contracts.rehearsal import Rehearsal, RehearsalOutcome
from reconverge.limit.limit import Limit

TOO_MANY_STATUS: Final = 3
UNREPORTED_END: Final = "a recording does not show when requests ended, and these limit what is in progress"
WIDTH: Final = 120
"""The width of tables in characters, without a terminal: so the output does not depend on the machine."""
WATCHED_EVERY: Final = 10_000
"""The number of requests after which the progress is shown again."""

FileArgument: TypeAlias = Annotated[
    Path, typer.Argument(help="The contracts as they would be: a YAML, JSON or TOML file.", metavar="FILE")
]
RecordingArgument: TypeAlias = Annotated[
    Path, typer.Argument(help="A CSV or CSV.gz file with a column t_s (seconds).", metavar="TRACE")
]
CustomerOption: TypeAlias = Annotated[
    str, typer.Option(help="The column with the customer; '*' for one customer, called all.", metavar="COLUMN")
]
CurrentOption: TypeAlias = Annotated[
    Path | None, typer.Option(help="The contracts as they are; by default there are no limits yet.", metavar="FILE")
]
FactOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(help="The column with another fact that limits count by.", metavar="FACT=COLUMN"),
]
CostOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        help="The column with what a request costs, by one limit or by all; by default 1.", metavar="[LIMIT=]COLUMN"
    ),
]
SettleOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(help="The column with the cost that is added when a request is over.", metavar="[LIMIT=]COLUMN"),
]
SettleAfterOption: TypeAlias = Annotated[
    float | None, typer.Option(help=f"Seconds that a request takes; by default {SETTLE_AFTER_S:g}.", metavar="SECONDS")
]
KindOption: TypeAlias = Annotated[
    str | None,
    typer.Option(help="The column with the kind of a request, for limits with costs by kind.", metavar="COLUMN"),
]
BeganOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="The moment at which t_s is 0, such as 2026-11-23T12:00:00Z. Not for times since 1970.", metavar="MOMENT"
    ),
]
MostOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help=f"End with status {TOO_MANY_STATUS} if more requests would be newly refused: 100, or 0.1%.",
        metavar="NUMBER",
    ),
]
TopOption: TypeAlias = Annotated[
    int, typer.Option("--most", "--top", help="How many customers to show, of each table.", min=1, metavar="N")
]


def plan(
    file: FileArgument,
    trace: RecordingArgument,
    customer: CustomerOption,
    current: CurrentOption = None,
    fact: FactOption = None,
    cost: CostOption = None,
    settle: SettleOption = None,
    settle_after: SettleAfterOption = None,
    kind: KindOption = None,
    began: BeganOption = None,
    max_newly_refused: MostOption = None,
    top: TopOption = 10,
    as_json: JsonOption = False,
) -> None:
    """Show which requests of a recording a change of contracts would newly refuse, or newly admit.

    Every request is decided twice at its own moment: under the present contracts and under the changed ones, each time
    by one central limiter. Two runs print the same. Ends with status 3 if --max-newly-refused is exceeded.
    """
    columns = RecordingColumns(
        customer, facts_in(fact or ()), of_limits("cost", cost), of_limits("settle", settle), kind
    )
    takes_ns = settle_after_ns(settle_after, columns)
    candidate = read_file(file)
    now = None if current is None else read_file(current)
    documents = [candidate] if now is None else [now, candidate]
    check_used(columns, documents)
    span = span_of(trace, columns)
    most = None if max_newly_refused is None else most_refused(max_newly_refused, span.requests)
    began_s = when_it_began_s(began, span, documents)
    shape = columns.shape(settle_after_ns=takes_ns, ends_ns=round((began_s + span.last_s) * SECOND_NS))
    outcome = _rehearsed(Rehearsal(now, candidate, shape), trace, columns, span, began_s)
    shown = Shown(
        outcome=outcome,
        recording=trace.name,
        candidate=file.name,
        current=None if current is None else current.name,
        top=top,
        began_s=began_s,
        dated=began is not None or span.since_1970,
        most=most,
    )
    _show(shown, span, as_json=as_json)
    if left := sorted({name for each in documents for name in _on_slots(each)}):
        typer.echo(f"left out: {', '.join(left)}; {UNREPORTED_END}", err=True)
    if shown.too_many:
        raise typer.Exit(TOO_MANY_STATUS)


def _rehearsed(
    rehearsal: Rehearsal, trace: Path, columns: RecordingColumns, span: Span, began_s: float
) -> RehearsalOutcome:
    with progress_shown(f"rehearsing {span.requests} requests") as show:
        for number, request in enumerate(requests_in(trace, columns, began_s)):
            if number % WATCHED_EVERY == 0:
                show(f"{number} requests", number, span.requests)
            rehearsal.see(request)
    return rehearsal.outcome()


def _show(shown: Shown, span: Span, *, as_json: bool) -> None:
    """Prints how many requests a change of contracts affects, and which, as JSON, or as tables without empty ones."""
    if as_json:
        print(json.dumps(shown.as_json(), indent=2))
        return
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=WIDTH)
    outcome = shown.outcome
    first_ns, last_ns = (round((shown.began_s + each) * SECOND_NS) for each in (span.first_s, span.last_s))
    console.print(heading(shown, first_ns, last_ns), markup=False, soft_wrap=True)
    console.print()
    console.print(totals_table(shown))
    for title, effects in (("newly refused", outcome.refused), ("newly admitted", outcome.admitted)):
        if effects:
            console.print()
            console.print(effects_table(shown, title, effects))
            if more := left_out(shown, effects):
                console.print(more, soft_wrap=True)
    if outcome.limits:
        console.print()
        console.print(limits_table(outcome))
    if sentence := verdict(shown):
        console.print()
        console.print(sentence, soft_wrap=True)


def _on_slots(document: Document) -> Iterator[str]:
    """Yields the names of the limits in a document that count work in progress, which a recording cannot show."""
    for plan in document.plans.values():
        yield from (name for name, each in plan.limits.items() if each.limit.slots)
    for customer in document.customers.values():
        for name, said in customer.limits.items():
            if (Limit.parse(said) if isinstance(said, str) else said).slots:
                yield name
