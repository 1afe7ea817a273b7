"""The figures (measured numbers) of simulated runs: over- and under-admission, messages, broken bounds."""

from __future__ import annotations

import subprocess
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from reconverge.clock import MILLISECOND_NS
from reconverge.limit.limit import Limit
from reconverge.policies import Policy
from reconverge.simulation.truth import (
    Bounds,
    DecidedRequest,
    Place,
    charge_of,
    excess_by_place,
    first_asked,
    ideal_admissions,
    number_of,
    placed,
)

PERCENT = 100.0


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one policy over all seeds.

    Percentages are of the limit (over-admission of a bucket: of its capacity). They cover all windows of all keys with
    any request, without the warm-up; `bound_violations` includes the warm-up.
    """

    over_mean_pct: float
    over_p99_pct: float
    over_max_pct: float
    under_mean_pct: float
    under_max_pct: float
    messages_per_node_window: float
    bound_pct: float
    """The declared bound for a key that all nodes know, in % of the limit."""
    bound_violations: int
    """The number of windows that exceeded the bound declared for them."""
    admitted_pct: float
    """The admitted cost, in % of the cost that one central limiter would have admitted."""
    falsely_refused_pct: float
    """The cost that one central limiter would have admitted and the fleet has not, over all windows, in % of the
    former. Cost that the fleet admitted above the limit does not make up for it.

    Under-admission by window, on the other hand, also counts cost that is admitted one window later or earlier.
    """
    asked_pct: float = 0.0
    """The requests that waited for the hub's answer, in % of all requests."""
    waited_median_ms: float = 0.0
    """The median time, in milliseconds, for which requests waited that asked the hub."""
    waited_p99_ms: float = 0.0
    waited_max_ms: float = 0.0

    def as_json(self) -> dict[str, float]:
        """Returns the value of each figure by its name."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class RunFigures:
    """The figures of one policy in one run, window by window after the warm-up. Percentages are of the limit."""

    over_pct: list[float]
    under_pct: list[float]
    messages_per_node: list[float]
    bound_pct: float
    broken: dict[Place, int]
    """By key and window, for windows that exceeded their bound: the cost by which they exceeded the limit."""
    admitted: int
    exceeding: int
    """The part of the admitted cost that was above the limit."""
    ideal: int
    """The cost that one central limiter would have admitted."""
    busiest: str
    """The key with the most requests; empty if there were no requests."""
    busiest_by_window: list[int]
    """The admitted cost of the busiest key in each window, warm-up included."""
    requests: int = 0
    """The number of requests, of any cost."""
    waited_ns: list[int] = field(default_factory=list)
    """For each request that asked the hub, the time that it waited, in nanoseconds."""
    reports: int = 0
    """The number of reports of one key that all nodes have sent."""


def judge_run(
    limit: Limit,
    policy: Policy,
    decided: list[DecidedRequest],
    messages: Sequence[int],
    *,
    nodes: int,
    windows: int,
    warmup: int,
    begin_ns: int,
    restarts: int = 0,
    hub_windows: Mapping[str, Collection[int]] | None = None,
    waited_for_ns: Mapping[str, int] | None = None,
    others: Sequence[Limit] = (),
    parts: int = 1,
) -> RunFigures:
    """Judges one run that began at `begin_ns` by the hub's clock, and returns its figures.

    For the declared bound, each restart counts as a further node, and every node counts once for each of the `parts`
    into which the limit is divided. `hub_windows` and `waited_for_ns` are explained at `RunHistory`. `others` are the
    other quotas of the same limit, which a central limiter would keep as well.
    """
    decided = placed(limit, decided, hub_windows)
    first_epoch = number_of(limit, begin_ns)
    charges = [charge_of(one) for one in decided if one.allowed]
    excess = excess_by_place(limit, charges, settling=False, born_ns=first_asked(decided, waited_for_ns))
    bounds = Bounds(limit, policy, parts * (nodes + restarts), decided)
    admitted: defaultdict[Place, int] = defaultdict(int)
    for charge in charges:
        admitted[charge.key, charge.epoch] += charge.cost
    ideal, _ = ideal_admissions(limit, decided, settle_after_ns=0, others=others)
    judged = [one for one in decided if first_epoch + warmup <= one.epoch < first_epoch + windows]
    counted = list(dict.fromkeys((one.key, one.epoch) for one in judged))
    whole, quota = limit.capacity / PERCENT, limit.quota / PERCENT
    asked = Counter(one.key for one in decided)
    busiest = max(asked, key=asked.__getitem__, default="")
    return RunFigures(
        over_pct=[excess.get(place, 0) / whole for place in counted],
        under_pct=[max(0, ideal.get(place, 0) - admitted[place]) / quota for place in counted],
        messages_per_node=[count / nodes for count in [*messages, *[0] * windows][warmup:windows]],
        bound_pct=bounds.of(None) / whole,
        broken=bounds.broken(excess),
        admitted=sum(admitted[place] for place in counted),
        exceeding=sum(excess.get(place, 0) for place in counted),
        ideal=sum(ideal.get(place, 0) for place in counted),
        busiest=busiest,
        busiest_by_window=[admitted[busiest, first_epoch + number] for number in range(windows)],
        requests=len(judged),
        waited_ns=[one.waited_ns for one in judged if one.asked],
    )


def summed_up(runs: Iterable[RunFigures]) -> Figures:
    """Returns the figures of one policy over all its runs, one with each seed."""
    runs = list(runs)
    over = sorted(value for run in runs for value in run.over_pct) or [0.0]
    under = [value for run in runs for value in run.under_pct] or [0.0]
    messages = [value for run in runs for value in run.messages_per_node] or [0.0]
    admitted, ideal = sum(run.admitted for run in runs), sum(run.ideal for run in runs)
    waited_ns = [each for run in runs for each in run.waited_ns]
    median_ms, p99_ms, max_ms = waits_ms(waited_ns)
    return Figures(
        over_mean_pct=_rounded(sum(over) / len(over)),
        over_p99_pct=_rounded(over[-(-len(over) * 99 // 100) - 1]),
        over_max_pct=_rounded(over[-1]),
        under_mean_pct=_rounded(sum(under) / len(under)),
        under_max_pct=_rounded(max(under)),
        messages_per_node_window=_rounded(sum(messages) / len(messages)),
        bound_pct=_rounded(max(run.bound_pct for run in runs)),
        bound_violations=sum(len(run.broken) for run in runs),
        admitted_pct=_rounded(PERCENT * admitted / max(1, ideal)),
        falsely_refused_pct=falsely_refused_pct(ideal, admitted, sum(run.exceeding for run in runs)),
        asked_pct=_rounded(PERCENT * len(waited_ns) / max(1, sum(run.requests for run in runs))),
        waited_median_ms=median_ms,
        waited_p99_ms=p99_ms,
        waited_max_ms=max_ms,
    )


def falsely_refused_pct(ideal: int, admitted: int, exceeding: int) -> float:
    """Returns how much less than `ideal` the fleet admitted within the limit over a run, in % of `ideal`.

    `ideal` is the cost that a central limiter would admit. `exceeding` is the part of `admitted` above the limit of its
    window, which makes up for no false refusal.
    """
    return _rounded(PERCENT * max(0, ideal - (admitted - exceeding)) / max(1, ideal))


def waits_ms(waited_ns: Iterable[int]) -> tuple[float, float, float]:
    """Returns the median, the 99th percentile and the maximum of `waited_ns`, in milliseconds; zeros if it is empty."""
    ordered = sorted(waited_ns) or [0]
    median, p99 = (ordered[-(-len(ordered) * part // 100) - 1] for part in (50, 99))
    return _in_ms(median), _in_ms(p99), _in_ms(ordered[-1])


def _in_ms(duration_ns: int) -> float:
    return _rounded(duration_ns / MILLISECOND_NS)


def _rounded(value: float) -> float:
    return round(value, 3)


IN_DOUBT: Final = (
    "strict: falsely refused over the run/above the limit, %",
    "balanced",
    "asked, % of requests, strict",
    "waited, median/99th/longest, ms",
    "messages, strict",
)
"""The headings of the columns of the table about requests that ask."""


def row_in_doubt(name: str, figures: Mapping[str, Figures]) -> str:
    """Returns a row, in Markdown, of the table that shows the gain of asking; `figures` are by policy."""
    strict = figures["strict"]
    cells = [
        *(f"{each.falsely_refused_pct:.2f}/{each.over_max_pct:.1f}" for each in (strict, figures["balanced"])),
        f"{strict.asked_pct:.1f}",
        f"{strict.waited_median_ms:.1f}/{strict.waited_p99_ms:.1f}/{strict.waited_max_ms:.1f}",
        f"{strict.messages_per_node_window:.1f}",
    ]
    return f"| {name} | {' | '.join(cells)} |"


HERE: Final = Path(__file__).parent
CHANGEABLE: Final = ("agent", "sync")
"""The directories of the code that a simulation runs."""


def commit_of(place: Path = HERE) -> str:
    """Returns the last commit, its date, and whether the code has changed since; an empty string outside a clone."""
    try:
        _git(place, "ls-files", "--error-unmatch", ".")
        words = _git(place, "log", "-1", "--format=%h, %cs")
        changed = _git(place, "status", "--porcelain", "--", *(f":/{root}" for root in CHANGEABLE))
    except (OSError, subprocess.CalledProcessError):
        return ""  # installed, or without git
    return f"{words}, with changes that are not committed" if changed else words


def _git(place: Path, *arguments: str) -> str:
    command = ["git", "-C", str(place), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
