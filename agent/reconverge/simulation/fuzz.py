"""Random fleets, traffic and faults, judged by what must never happen. Run as `python -m reconverge.simulation.fuzz`.

Five modes. *Safety*: with any faults, no window exceeds its declared bound, and no count is lost or doubled.
*Liveness*: once faults and requests have ended, all nodes soon agree on what was used. *Elected*: safety, when the
nodes keep the ledger among themselves. *Regions*: safety, when there are several hubs with bridges. *Slots*: a limit on
work in progress never has more work under way than it allows, and loses no slot; see `in_progress/`.

With `--reckless`, nodes leave charges unreported far more often, for longer, and more of them than in production
(`simulation/reckless.py`); what must never happen is the same.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from reconverge.clock import SECOND_NS, SystemClock
from reconverge.limit.limit import Limit
from reconverge.policies import STRICT
from reconverge.runtime.backoff import BACKOFF_CAP_NS
from reconverge.simulation.cases import ARRIVALS_MAX, ELECTED, LIVENESS, REGIONS, SAFETY, Case, draw_case
from reconverge.simulation.changing import on_one_plan, stretches
from reconverge.simulation.fault import ENDS, Fault, FaultKind, restarts
from reconverge.simulation.fleet import Fleet
from reconverge.simulation.in_progress.cases import try_slots
from reconverge.simulation.judging.called_free import is_plain, too_free
from reconverge.simulation.reckless import SilenceCount, reckless_if
from reconverge.simulation.studies.experiment import PROCESSES, mapped
from reconverge.simulation.truth import DecidedRequest, RunHistory, broken_windows, number_of
from reconverge.simulation.world import World

SLOTS: Final = "slots"
CASES: Final = (SAFETY, LIVENESS, ELECTED, REGIONS)
"""The modes whose cases are fleets of limits on a rate."""
MODES: Final = (*CASES, SLOTS)


def try_case(case: Case) -> list[str]:
    """Runs a case. Returns a sentence for each broken promise; an empty list if the case keeps all promises."""
    experiment, fleet = case.experiment, case.experiment.fleet
    faults = experiment.faults_of(case.seed)
    world = World(fleet, case.policy, faults, seed=case.seed, make_rule=case.make_rule)
    window_ns = fleet.limit.window_ns
    asked_until_ns = window_ns // 3 if case.mode == LIVENESS else experiment.windows * window_ns
    drawn = experiment.arrivals(case.seed)[:ARRIVALS_MAX]
    arrivals = [arrival for arrival in drawn if arrival.moment_ns < asked_until_ns]
    history = world.run(arrivals, until_ns=arrivals[-1].moment_ns if arrivals else 0)
    problems = _exceeded(case, world.begin_ns, history, nodes=fleet.nodes + restarts(faults))
    if _is_judged_by_answers(case, faults):
        problems += too_free(fleet.limit, history.decided, history.called_free)
    over_ns = max(world.now_ns, world.faults_end_ns())  # later, if the last requests waited for the hub
    world.pass_until(max(over_ns, case.settled_ns))
    world.pass_until(world.now_ns + agreement_ns(fleet))
    # The member that ends may have kept the ledger, and with it the accounts.
    if case.mode != ELECTED or not any(fault.kind in ENDS for fault in faults):
        problems += world.miscounted()
    if case.mode == LIVENESS:
        let_leases_end(world)
        problems += world.unseen(history.decided)
        world.ask_everywhere()
        world.pass_until(world.now_ns + agreement_ns(fleet))
        problems += world.disagreements()
    return problems


def _is_judged_by_answers(case: Case, faults: Sequence[Fault]) -> bool:
    """Whether the free cost in each of the hub's answers can be checked against the admitted charges alone."""
    fleet = case.experiment.fleet
    changes = fleet.changes or fleet.plans or fleet.regions > 1 or case.make_rule is not None
    lost = any(fault.kind is FaultKind.LOSE_DATA for fault in faults)
    return case.policy is STRICT and is_plain(fleet.limit) and not (changes or lost)


def _exceeded(case: Case, begin_ns: int, history: RunHistory, *, nodes: int) -> list[str]:
    """Returns a sentence for each window that exceeded its declared bound; `nodes` counts a restarted node twice."""
    fleet, policy, problems = case.experiment.fleet, case.policy, []
    for number, limit, decided in _judged(case, begin_ns, history):
        hub_windows = history.hub_windows if number == 0 else None
        waited_for_ns = history.waited_for_ns
        broken = broken_windows(
            limit, policy, decided, nodes=nodes, hub_windows=hub_windows, waited_for_ns=waited_for_ns
        )
        first = number_of(limit, begin_ns)
        problems += [
            f"{key} in window {epoch - first}: {over} above {limit}, more than declared"
            for (key, epoch), over in broken.items()
        ]
    for limit, decided in on_one_plan(fleet.limit, fleet.plans, history.decided, begin_ns):
        broken = broken_windows(limit, policy, decided, nodes=nodes)
        problems += [
            f"{key} on the plan of {limit}: {over} above it, more than declared" for (key, _), over in broken.items()
        ]
    return problems


def _judged(case: Case, begin_ns: int, history: RunHistory) -> Iterator[tuple[int, Limit, list[DecidedRequest]]]:
    """Yields the index of a quota, a limit, and the decisions to be judged by that limit, for each part of the run.

    A quota that changes is judged once for each part of the run between two changes.
    """
    fleet = case.experiment.fleet
    for number, (limit, decided) in enumerate(zip(fleet.quotas.values(), history.by_quota, strict=True)):
        for stretch in stretches(limit, fleet.changes if number == 0 else ()):
            yield number, stretch.limit, [one for one in decided if stretch.includes(one.hub_ns - begin_ns)]


def let_leases_end(world: World) -> None:
    """Runs the world until the hub has given up all names that no process uses any more.

    Does nothing if the window would then end before the nodes could agree. From then on the hub counts all that may
    have been used under these names, which changes the nodes' view; see `judging/leases.py`.
    """
    end_ns = world.given_up_ns()
    judging_ns = world.fleet.longest_silence_ns + world.fleet.heard_within_ns + agreement_ns(world.fleet)
    if end_ns + judging_ns < world.fleet.limit.window_ns:
        world.pass_until(end_ns)


def agreement_ns(fleet: Fleet) -> int:
    """Returns the nanoseconds within which all nodes agree once faults have ended and a request asks each node.

    The time covers the longest silence, two sync intervals, a back-off, a timeout, and the round trips of three
    exchanges, the first of which is under a new name.
    """
    back_off_ns = max(fleet.sync_interval_ns, BACKOFF_CAP_NS)
    exchanges_ns = 2 * fleet.longest_interval_ns + fleet.timeout_ns + 5 * fleet.round_trip_ns
    return fleet.longest_silence_ns + back_off_ns + exchanges_ns


class FuzzTask(NamedTuple):
    """A case to try, by its mode and its seed, with the silences of production or with reckless ones."""

    mode: str
    seed: int
    reckless: bool = False

    def command(self) -> str:
        """Returns the shell command that tries the case again, and a description of the case."""
        reckless = " --reckless" * self.reckless
        if self.mode == SLOTS:
            return f"python -m reconverge.simulation.fuzz --mode {SLOTS} --start {self.seed} --seeds 1"
        case = draw_case(self.mode, self.seed)
        return f"{case.command()}{reckless}\n  {case}"


class Tried(NamedTuple):
    """A tried case, with a sentence for each broken promise, and the counts of its silences if they are reckless."""

    task: FuzzTask
    problems: list[str]
    silences: SilenceCount


def _try_seed(task: FuzzTask) -> Tried:
    with reckless_if(wanted=task.reckless) as count:
        try:
            if task.mode == SLOTS:
                return Tried(task, try_slots(task.seed), count)
            return Tried(task, try_case(draw_case(task.mode, task.seed)), count)
        except Exception as error:  # noqa: BLE001, any error must be printed with the seed that finds it
            return Tried(task, [f"{type(error).__name__}: {error}"], count)


def main(arguments: Sequence[str] | None = None) -> int:
    """Tries the cases of many seeds, and prints those that break a promise. Returns 1 if there were any, else 0."""
    parser = argparse.ArgumentParser(prog="python -m reconverge.simulation.fuzz", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="the number of seeds to try (default: %(default)s)")
    parser.add_argument("--start", type=int, default=0, help="the first of them")
    parser.add_argument("--mode", choices=MODES, action="append", help="by default all")
    parser.add_argument("--reckless", action="store_true", help="absurd constants of silence; not of the mode slots")
    parser.add_argument("--processes", type=int, default=PROCESSES)
    options = parser.parse_args(arguments)
    reckless = options.reckless
    modes = options.mode or (CASES if reckless else MODES)
    if reckless and SLOTS in modes:
        parser.error(f"limits on work in progress have no silences; choose --mode from {', '.join(CASES)}")
    if reckless:
        os.environ["RECONVERGE_NO_EXTENSIONS"] = "1"  # for workers: the compiled kernel has its own constants
    seeds = range(options.start, options.start + options.seeds)
    tasks = [FuzzTask(mode, seed, reckless) for seed in seeds for mode in modes]
    failed, silences = 0, SilenceCount()
    clock = SystemClock()
    began_ns = clock.monotonic_ns()
    for tried in mapped(_try_seed, tasks, processes=options.processes, chunk=8, apart=reckless):
        silences.add(tried.silences)
        if tried.problems:
            failed += 1
            print(f"{tried.task.command()}\n  " + "\n  ".join(tried.problems[:5]), flush=True)
    passed = len(tasks) - failed
    took_s = (clock.monotonic_ns() - began_ns) / SECOND_NS
    print(f"fuzz: {passed} passed, {failed} failed, in {took_s:.0f} s")
    if reckless:
        print(silences)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
