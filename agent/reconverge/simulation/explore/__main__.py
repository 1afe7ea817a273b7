"""Explores small worlds: every order of events up to a depth, on the production code, judged after each event.

Each case is a kind of limit, a policy, whether requests ask the hub, and a grain: whether each step of a message is an
event, or a whole exchange. Prints for each case the depth that the search reached, the number of different states and
the processor seconds, and each counterexample as a short program. With `--table FILE` the searches that stand in the
file are not made again.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from reconverge.simulation.explore.events import GRAINS, KINDS, MORE, POLICIES, RECKLESS
from reconverge.simulation.explore.runs import ASKING, RunTable, SilenceTotals, Task, cases_of, explored
from reconverge.simulation.studies.experiment import PROCESSES, mapped


def main(arguments: Sequence[str] | None = None) -> int:
    """Explores the cases that the command line names. Returns the exit status: 1 if a promise is broken."""
    parser = argparse.ArgumentParser(prog="python -m reconverge.simulation.explore", description=__doc__)
    parser.add_argument("--kind", choices=KINDS, action="append", help="a kind of limit; by default all")
    parser.add_argument("--policy", choices=tuple(POLICIES), action="append", help="by default all with a bound")
    parser.add_argument(
        "--asking", choices=tuple(ASKING), default="both", help="whether requests ask the hub, if they can"
    )
    parser.add_argument("--grain", choices=GRAINS, action="append", help="by default both")
    parser.add_argument("--quota", type=int, default=4, help="the quota of each limit (default: %(default)s)")
    parser.add_argument("--nodes", type=int, default=2, help="(default: %(default)s)")
    parser.add_argument("--window", type=float, default=2.0, help="of each limit, in seconds (default: %(default)s)")
    parser.add_argument("--more", choices=MORE, action="append", default=[], help="an extra that each case has")
    parser.add_argument("--start", action="append", default=[], help="an event with which every path begins")
    parser.add_argument("--depth", type=int, default=4, help="the most events of a path (default: %(default)s)")
    parser.add_argument(
        "--states", type=int, default=200_000, help="states after which a search goes no deeper (default: %(default)s)"
    )
    parser.add_argument("--faults", type=int, default=3, help="the most faults of a path (default: %(default)s)")
    parser.add_argument("--table", type=Path, help="a file to which rows are added; skips cases that have a row")
    parser.add_argument("--processes", type=int, default=PROCESSES)
    options = parser.parse_args(arguments)
    cases = cases_of(
        options.kind or KINDS,
        options.policy or tuple(POLICIES),
        options.asking,
        options.grain or GRAINS,
        options.quota,
        options.nodes,
        options.window,
        options.more,
    )
    tasks = [Task(case, options.depth, options.states, options.faults, tuple(options.start)) for case in cases]
    table, silences = RunTable(options.table), SilenceTotals()
    os.environ["RECONVERGE_NO_EXTENSIONS"] = "1"  # for workers: they read fields that the compiled kernel hides
    for done in mapped(
        explored, [task for task in tasks if not table.has(task)], processes=options.processes, apart=True
    ):
        print(table.add(done), flush=True)
        if RECKLESS in done.found.case.more:
            silences = silences.plus(done.found)
            print(SilenceTotals().plus(done.found), flush=True)
    totals = table.totals()
    if silences.states:
        print(f"\nin all, {silences}")
    print(f"\n{totals}")
    return 1 if totals.broken else 0


if __name__ == "__main__":
    sys.exit(main())
