"""The ways of testing that look for a fault: the command of each, and how its output shows that it has found one."""

from __future__ import annotations

import re
import sys
from random import SystemRandom
from typing import Final, NamedTuple

from bench.planted.fault import PlantedFault
from chaos.bound.scenarios import KINDS
from reconverge.simulation.model.bound.runs import WALK
from reconverge.simulation.model.bound.small_cases import SMALL

EXPLORATION: Final = "exploration"
FUZZ: Final = "fuzz"
MACHINES: Final = "state machines"
MODEL: Final = "model"
BINDING: Final = "binding"
CHAOS: Final = "chaos"
BOUND_CHAOS: Final = "bound chaos"
FINDERS: Final = (EXPLORATION, FUZZ, MACHINES, MODEL, BINDING, CHAOS, BOUND_CHAOS)
"""All finders, in the order of the table's columns."""
SLOW: Final = (CHAOS, BOUND_CHAOS)

MACHINES_FILES: Final = ("tests/protocol/test_protocol.py", "tests/protocol/test_slots.py")
RECKLESS_FILES: Final = ("tests/protocol/test_reckless.py",)
"""The state machines in which silence has absurd constants."""
SEEDS: Final = 100_000
"""More seeds than the fuzz can try in the time."""
NO_BOUND: Final = str(10**9)
"""A bound that no search reaches: the search ends with the time, or with a fault."""


class FinderCommand(NamedTuple):
    """A command that looks for a fault, and the line of its output that shows one."""

    words: tuple[str, ...]
    shows: re.Pattern[str]
    again: bool = False
    """Whether to run the command again, with other random numbers, when it has ended without finding the fault."""
    by_clock: bool = False
    """Whether the finder's time is measured by the clock, not by the processors."""


def is_followed(fault: PlantedFault) -> bool:
    """Returns whether there are chaos scenarios with the fault that the model can follow."""
    return fault.modelled and bool(fault.followed or fault.chaos)


def command_of(finder: str, fault: PlantedFault) -> FinderCommand | None:
    """Returns the command by which a finder looks for a fault; None if it cannot find it, or is not to try."""
    python, reckless = (sys.executable, "-m"), ("--reckless",) * fault.reckless
    if finder == EXPLORATION:
        words = (*python, "reconverge.simulation.explore", *fault.case.options())
        words += ("--depth", NO_BOUND, "--states", NO_BOUND, "--processes", "1")
        # The sentence "the digest is blind" does not count: it shows a fault of the search.
        return FinderCommand(words, re.compile(r"^# (?!the digest is blind).+", re.MULTILINE))
    if finder == FUZZ:
        words = (*python, "reconverge.simulation.fuzz", "--seeds", str(SEEDS), "--processes", "1")
        words += ("--start", str(SystemRandom().randrange(10**9)), *reckless)
        return FinderCommand(words, re.compile(r"^python -m reconverge\.simulation\.fuzz .+", re.MULTILINE))
    if finder == MACHINES:
        words = (*python, "pytest", "-x", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=random")
        words += RECKLESS_FILES if fault.reckless else MACHINES_FILES
        return FinderCommand(words, re.compile(r"^E  .+", re.MULTILINE), again=True)
    if finder == MODEL and fault.guard is not None:
        words = (*python, "reconverge.simulation.model", "--guard", fault.guard.name)
        return FinderCommand(words, re.compile(r"^ +\S.+, and then not: .+", re.MULTILINE))
    if finder == BINDING and fault.modelled:
        words = (*python, "reconverge.simulation.model", "--bind", "--mode", WALK, "--mode", SMALL, *reckless)
        words += ("--runs", str(SEEDS), "--start", str(SystemRandom().randrange(10**9)), "--processes", "1")
        # An action, the name of a node, and why the step is rejected; not the case, whose parentheses have spaces.
        return FinderCommand(words, re.compile(r"^[^|$\n]+ \([^ ()]+\): .+", re.MULTILINE))
    if finder == CHAOS and fault.chaos:
        words = (*python, "chaos", "run", fault.chaos, "--alone")
        # A line, and the first of the broken promises on the next one.
        return FinderCommand(words, re.compile(r"^.+ BROKEN: .+\n .+\n", re.MULTILINE), again=True, by_clock=True)
    if finder == BOUND_CHAOS and is_followed(fault):
        kind = fault.case.kind if fault.case.kind in KINDS else "fixed"
        words = (*python, "chaos", "bind", *(fault.followed or (fault.chaos,)), "--short-leases", "--limit", kind)
        words += ("--policy", fault.case.policy.removesuffix(" at nodes"))
        return FinderCommand(words, re.compile(r"^REJECTED: .+", re.MULTILINE), again=True, by_clock=True)
    return None
