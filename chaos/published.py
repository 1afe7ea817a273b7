"""Repeats measurements that others have published about their limiters, with real processes.

`python -m chaos.published`.

Each case is a setting in which more admissions than the limit allows were measured. The same requests are decided by
reconverge, strict and balanced, and by a limiter that trusts the last merged total, side by side in the same processes.
The first windows are left out: in them the nodes meet.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Final

from chaos.report.results import circumstances
from reconverge.cli.replay import fleet
from reconverge.cli.replay.fleet import ReplayOutcome, Setup
from reconverge.cli.replay.judgement import arrivals_of, judge
from reconverge.cli.replay.trace import RecordedRequest
from reconverge.limit import FIXED_WINDOW, SLIDING_WINDOW, Limit
from reconverge.policies import POLICIES
from reconverge.simulation.truth import TrueCharge, excess_by_place, ideal_admissions

KEY: Final = "shared"
WARMUP_WINDOWS: Final = 2
SHOWN: Final = ("strict", "balanced", "naive")
OVER_MEAN_PCT_MAX: Final = 1.0
UNDER_MEAN_PCT_MAX: Final = 2.0


@dataclass(frozen=True, slots=True)
class Case:
    """One published setting."""

    name: str
    published: str
    """The published result."""
    limit: Limit
    nodes: int
    sync_interval_s: float
    per_s: float
    """The mean number of requests per second."""
    windows: int
    cost: int = 1
    burst: int = 1
    """The number of requests that come at once, one after the other over the nodes."""

    def requests(self, random: Random) -> list[RecordedRequest]:
        """Returns requests at a steady rate, or in bursts, drawn from a seed."""
        return list(self._drawn(random))

    def _drawn(self, random: Random) -> Iterator[RecordedRequest]:
        moment_s = 0.0
        while (moment_s := moment_s + random.expovariate(self.per_s / self.burst)) < self.windows * self.limit.window:
            for number in range(self.burst):
                yield RecordedRequest(moment_s + number * 1e-4, KEY, self.cost, 0)


@dataclass(frozen=True, slots=True)
class Result:
    """The figures of one policy in a case. Percentages are of the limit, by window, without the first windows."""

    case: str
    published: str
    policy: str
    admitted_per_window: float
    over_mean_pct: float
    over_max_pct: float
    under_mean_pct: float
    hub_total_equals_admitted: bool
    request_pct: float
    """One request, in % of the limit."""
    nodes: int

    def as_promised(self) -> bool:
        """Returns whether the figures are as promised: strict never over, balanced hardly over, no false refusals."""
        if not self.hub_total_equals_admitted:
            return False
        if self.policy == "strict":
            return self.over_max_pct == 0.0
        over_pct = max(
            OVER_MEAN_PCT_MAX, self.nodes * self.request_pct if self.request_pct > OVER_MEAN_PCT_MAX else 0.0
        )
        return self.policy != "balanced" or (
            self.over_mean_pct <= over_pct and self.under_mean_pct <= UNDER_MEAN_PCT_MAX
        )


def cases() -> list[Case]:
    """Returns all cases."""
    shared = [
        Case(
            f"1000/s over {nodes} processes, 4 times the load, exchanging every {interval_s * 1000:g} ms",
            f"{over} over",
            Limit(1000, 1.0, algorithm=FIXED_WINDOW),
            nodes,
            interval_s,
            4000.0,
            8,
        )
        for interval_s, over in ((0.05, "+13.1 %"), (0.01, "+3.7 %"))
        for nodes in (2, 4)
    ]
    return [
        *shared,
        Case(
            "500/s sliding over 2 processes, 800/s asked for, exchanging every 200 ms",
            "590/s, then 438/s; ideal 499",
            Limit(500, 1.0, algorithm=SLIDING_WINDOW),
            2,
            0.2,
            800.0,
            12,
        ),
        Case(
            "162,000/60 s at a cost of 1,500, in bursts over 5 processes",
            "481,500 admitted",
            Limit(162_000, 60.0, algorithm=FIXED_WINDOW),
            5,
            1.0,
            12.0,
            4,
            cost=1500,
            burst=60,
        ),
    ]


def run_case(case: Case, *, hub_url: str, seed: int) -> list[Result]:
    """Runs a case on real processes, once, under all policies."""
    setup = Setup(
        requests=case.requests(Random(seed)),
        limit=case.limit,
        policies=SHOWN,
        nodes=case.nodes,
        speed=1.0,
        hub_url=hub_url,
        sync_interval_s=case.sync_interval_s,
        warm=True,
    )
    outcome = fleet.run(setup, _unwatched)
    kept = {judgement.policy: judgement.hub_total_equals_admitted for judgement in judge(outcome)}
    return [_result(case, outcome, number, kept=kept[name]) for number, name in enumerate(SHOWN)]


def _unwatched(progress: fleet.Progress) -> None:
    """Does nothing with the progress."""


def _result(case: Case, outcome: ReplayOutcome, policy_number: int, *, kept: bool) -> Result:
    arrivals = arrivals_of(outcome, policy_number)
    limit = case.limit
    charges = [TrueCharge(one.key, one.epoch, one.hub_ns, one.cost, settling=False) for one in arrivals if one.allowed]
    excess = excess_by_place(limit, charges, settling=False)
    ideal, _ = ideal_admissions(limit, arrivals, settle_after_ns=0)
    admitted: defaultdict[int, int] = defaultdict(int)
    for charge in charges:
        admitted[charge.epoch] += charge.cost
    epochs = sorted({one.epoch for one in arrivals})[WARMUP_WINDOWS:-1]
    over = [excess.get((KEY, epoch), 0) for epoch in epochs]
    under = [max(0, ideal.get((KEY, epoch), 0) - admitted[epoch]) for epoch in epochs]
    return Result(
        case=case.name,
        published=case.published,
        policy=SHOWN[policy_number],
        admitted_per_window=round(sum(admitted[epoch] for epoch in epochs) / len(epochs), 1),
        over_mean_pct=_percent(sum(over) / len(over), limit),
        over_max_pct=_percent(max(over), limit),
        under_mean_pct=_percent(sum(under) / len(under), limit),
        hub_total_equals_admitted=kept,
        request_pct=_percent(case.cost, limit),
        nodes=case.nodes,
    )


def _percent(amount: float, limit: Limit) -> float:
    return round(100 * amount / limit.quota, 3)


def table(results: Sequence[Result]) -> str:
    """Returns a table of all results in Markdown."""
    lines = ["| case | published | policy | admitted per window | over mean / max | under mean | |", "|---" * 7 + "|"]
    for each in results:
        verdict = "for comparison" if POLICIES[each.policy].merged_only else "ok" if each.as_promised() else "NOT OK"
        lines.append(
            f"| {each.case} | {each.published} | {each.policy} | {each.admitted_per_window:,} "
            f"| {each.over_mean_pct} / {each.over_max_pct} % | {each.under_mean_pct} % | {verdict} |"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the cases and prints the table. Returns 1 if our results are not as promised."""
    parser = argparse.ArgumentParser(prog="python -m chaos.published", description=__doc__)
    parser.add_argument("--hub", default="embedded://published", help="where the nodes meet (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="only cases whose name contains this")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there, too")
    options = parser.parse_args(arguments)
    results = []
    for case in cases():
        if options.only in case.name:
            print(f"{case.name} ...", file=sys.stderr, flush=True)
            results += run_case(case, hub_url=options.hub, seed=options.seed)
    print(table(results))
    if options.json is not None:
        facts = {**circumstances(), "seed": options.seed, "results": [asdict(each) for each in results]}
        options.json.write_text(json.dumps(facts, indent=2) + "\n")
    return 0 if all(each.as_promised() for each in results) else 1


if __name__ == "__main__":
    sys.exit(main())
