"""Proves the bounds, and shows for each guard how a bound breaks without it: `python -m reconverge.simulation.model`.

With `--bind`, checks that steps of the production code are steps of the model: in random walks through small worlds,
and in cases of the fuzz. The exit status is 1 if a bound is not proved, if a guard that is not known to be needless
turns out to be so, or if a step is rejected.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from reconverge.clock import SECOND_NS, SystemClock
from reconverge.simulation.model.bound.runs import BOUND_MODES, bind
from reconverge.simulation.model.guards import NOT_ALONE, Law, ProofGuard
from reconverge.simulation.model.lemmas import lemmas
from reconverge.simulation.model.terms import Number
from reconverge.simulation.studies.experiment import PROCESSES

try:
    from reconverge.simulation.model import proving
except ImportError as error:  # it is an extra
    sys.exit(f"{error}; pip install 'reconverge[prove]'")

CLOCK = SystemClock()


def _seconds(since_ns: int) -> float:
    return (CLOCK.monotonic_ns() - since_ns) / SECOND_NS


def named(law: Law) -> str:
    """Returns the name of a class of limits and a policy, for a table: such as "window, strict"."""
    return f"{law.meter.name.lower()}, {'strict' if law.strict else 'balanced'}"


def _proofs() -> int:
    unproved = 0
    print(f"{'class, policy':24} {'action':34} {'invariants':>10} {'unproved':>8} {'seconds':>8}")
    for law in proving.laws():
        tables = {"a name begins": proving.check_beginning(law)}
        tables |= {name: proving.checks(law, name, action) for name, action in proving.actions_of(law).items()}
        for name, outcomes in tables.items():
            began_ns = CLOCK.monotonic_ns()
            made = list(outcomes)
            failed = [outcome for outcome in made if not outcome.proved]
            unproved += len(failed)
            print(f"{named(law):24} {name:34} {len(made):10} {len(failed):8} {_seconds(began_ns):8.2f}")
            for outcome in failed:
                _show(outcome)
    began_ns = CLOCK.monotonic_ns()
    made = [proving.check_lemma(lemma) for lemma in lemmas()]
    failed = [outcome for outcome in made if not outcome.proved]
    print(f"{'fading, drains, quotas':24} {'lemmas':34} {len(made):10} {len(failed):8} {_seconds(began_ns):8.2f}")
    for outcome in failed:
        _show(outcome)
    return unproved + len(failed)


def _show(outcome: proving.Check) -> None:
    print(f"    {outcome.action}, and then not: {outcome.invariant}")
    for line in lines(outcome.counterexample):
        print(f"      {line}")


def lines(example: Mapping[str, tuple[Number | bool, Number | bool]]) -> list[str]:
    """Returns a line for each field of a counterexample that the action changes, or that is neither 0 nor false."""
    found: list[str] = []
    for name, (before, after) in example.items():
        if before != after:
            found.append(f"{name} {before} -> {after}")
        elif before not in (0, False):
            found.append(f"{name} {before}")
    return found


def _guards(guards: Iterable[ProofGuard], *, full: bool) -> int:
    wrong = 0
    print("\nwithout a guard:")
    for guard in guards:
        began_ns = CLOCK.monotonic_ns()
        found = proving.broken_without(guard)
        print(f"{guard.name} ({guard.value.file}::{guard.value.function}), {_seconds(began_ns):.1f} s")
        wrong += (found is None) != (guard in NOT_ALONE)
        if found is None:
            print(f"    proved all the same: {NOT_ALONE.get(guard, 'no reason is known')}")
        else:
            law, outcome = found
            print(f"    {named(law)}: {outcome.action}, and then not: {outcome.invariant}")
            for line in lines(outcome.counterexample) if full else ():
                print(f"      {line}")
    return wrong


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the tables of the proof, or of `--bind`. Returns the exit status: 0 if all is as it should be, else 1."""
    parser = argparse.ArgumentParser(prog="python -m reconverge.simulation.model", description=__doc__)
    parser.add_argument("--no-guards", action="store_true", help="only prove, and take no guard out")
    parser.add_argument("--examples", action="store_true", help="print the states of each counterexample")
    parser.add_argument("--bind", action="store_true", help="check that steps of the code are steps of the model")
    parser.add_argument("--runs", type=int, default=100, help="with --bind, how many of each mode (%(default)s)")
    parser.add_argument("--start", type=int, default=0, help="with --bind, the first seed")
    parser.add_argument("--mode", choices=BOUND_MODES, action="append", help="with --bind; by default all modes")
    parser.add_argument("--processes", type=int, default=PROCESSES, help="with --bind, how many")
    parser.add_argument(
        "--reckless", action="store_true", help="with --bind, give silence absurd constants, which should bind as well"
    )
    parser.add_argument("--page", type=Path, help="with --bind, a file for the accepted steps")
    parser.add_argument(
        "--guard", choices=[guard.name for guard in ProofGuard], metavar="NAME", help="only take this guard out"
    )
    options = parser.parse_args(arguments)
    if options.reckless and not options.bind:
        parser.error("the proof knows no constants of silence; --reckless needs --bind")
    if options.bind:
        modes = tuple(options.mode or BOUND_MODES)
        where = {"start": options.start, "runs": options.runs, "processes": options.processes}
        return 1 if bind(**where, modes=modes, page=options.page, reckless=options.reckless) else 0
    if options.guard is not None:
        return int(_guards([ProofGuard[options.guard]], full=options.examples) > 0)
    began_ns = CLOCK.monotonic_ns()
    unproved = _proofs()
    wrong = 0 if options.no_guards else _guards(ProofGuard, full=options.examples)
    print(f"\n{unproved} steps unproved, {wrong} guards differ from NOT_ALONE, {_seconds(began_ns):.0f} s")
    return 1 if unproved or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
