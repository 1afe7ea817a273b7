"""Shows the results of a replay in numbers: as tables for people, and as JSON for programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from rich import box
from rich.table import Table

from reconverge.cli.replay.fleet import ReplayOutcome
from reconverge.cli.replay.judgement import Judgement
from reconverge.policies import POLICIES


def as_figures(outcome: ReplayOutcome, judgements: list[Judgement]) -> dict[str, object]:
    """Returns the results for `--json`: a flat object for one policy, or an object for each policy under `policies`."""
    setup = outcome.setup
    common = {
        "nodes": setup.nodes,
        "sync_interval_s": setup.sync_interval_s,
        "algorithm": setup.limit.algorithm,
        "quota": setup.limit.quota,
        "window_s": setup.limit.window,
        "speed": setup.speed,
        "cuts": [{"nodes": sorted(cut.nodes), "start_s": cut.start_s, "length_s": cut.length_s} for cut in setup.cuts],
    }
    each = {judgement.policy: judgement.as_json() | common for judgement in judgements}
    return each[judgements[0].policy] if len(each) == 1 else {"policies": each}


def figures_table(judgements: list[Judgement]) -> Table:
    """Returns a table of the results in numbers, with a column for each policy."""
    table = Table(box=box.SIMPLE, title_justify="left")
    table.add_column("")
    for judgement in judgements:
        table.add_column(judgement.policy, justify="right")
    for row in figures_rows(judgements):
        table.add_row(*row)
    return table


def figures_rows(judgements: list[Judgement]) -> list[list[str]]:
    """Returns the rows of the table of results, without its headings."""
    rows = (*_ROWS, *_ASK_ROWS) if any(judgement.asked_pct for judgement in judgements) else _ROWS
    return [[name, *(text(judgement) for judgement in judgements)] for name, text in rows]


def verdict_on(judgement: Judgement) -> str:
    """Returns a sentence that sums up the results of one policy."""
    if POLICIES[judgement.policy].merged_only:
        bound = f"declares no bound, and was {judgement.over_admission_max_pct:g} % above the limit at worst"
    elif judgement.bound_violations:
        bound = f"BROKE ITS BOUND in {judgement.bound_violations} windows"
    else:
        bound = (
            f"kept its bound in every window: at worst {judgement.known_over_admission_max_pct:g} % above the limit "
            f"for a known key ({judgement.known_bound_pct:g} % declared)"
        )
        if judgement.bound_pct > judgement.known_bound_pct:
            bound += (
                f"; of a new key each process may admit a first part by itself until the hub's first answer: "
                f"at worst {judgement.over_admission_max_pct:g} % above the limit ({judgement.bound_pct:g} % declared)"
            )
    if judgement.hub_total_equals_admitted:
        return f"{judgement.policy}: {bound}; nothing lost, nothing doubled."
    sums = f"THE HUB COUNTS {judgement.hub_total}, BUT {judgement.admitted_cost} WAS ADMITTED"
    return f"{judgement.policy}: {bound}; {sums}."


def _declared(judgement: Judgement, bound_pct: float) -> str:
    return "none" if POLICIES[judgement.policy].merged_only else f"{bound_pct:g} %"


def _microseconds(p50_ns: int, p99_ns: int) -> str:
    return f"{p50_ns / 1e3:.1f} / {p99_ns / 1e3:.1f} µs"


def _milliseconds(*values_ms: float) -> str:
    return " / ".join(f"{value_ms:.1f}" for value_ms in values_ms) + " ms"


_Rows: TypeAlias = tuple[tuple[str, Callable[[Judgement], str]], ...]
_ROWS: Final[_Rows] = (
    ("requests", lambda each: str(each.requests)),
    ("admitted", lambda each: str(each.admitted)),
    ("a central limiter would have", lambda each: str(each.ideal_admitted)),
    ("worst window of a known key", lambda each: f"{each.known_over_admission_max_pct:g} %"),
    ("declared bound there", lambda each: _declared(each, each.known_bound_pct)),
    ("worst window of any key", lambda each: f"{each.over_admission_max_pct:g} %"),
    ("mean of all windows", lambda each: f"{each.over_admission_mean_pct:g} %"),
    ("under-admission, by window", lambda each: f"{each.under_admission_pct:g} %"),
    ("refused falsely, over the run", lambda each: f"{each.falsely_refused_pct:g} %"),
    ("debt from settling at worst", lambda each: f"{each.debt_max_pct:g} %"),
    ("cost admitted, and settled", lambda each: str(each.admitted_cost)),
    ("hub's total in the end", lambda each: str(each.hub_total)),
    ("RateLimiter.allow, median / 99th", lambda each: _microseconds(each.decision_p50_ns, each.decision_p99_ns)),
    ("an increment in a dict, likewise", lambda each: _microseconds(each.floor_p50_ns, each.floor_p99_ns)),
    ("exchanges", lambda each: str(each.sync_messages)),
    ("failed ones", lambda each: str(sum(each.failures.values()))),
)
_ASK_ROWS: Final[_Rows] = (
    ("requests that asked the hub", lambda each: f"{each.asked_pct:g} %"),
    (
        "waited, median / 99th / longest",
        lambda each: _milliseconds(each.waited_median_ms, each.waited_p99_ms, each.waited_max_ms),
    ),
)
"""The rows of the table about requests that ask the hub."""
