"""Goal: no bound depends on the constants by which nodes are silent about their charges, or recall keys.

Method: state machines, fuzz, exploration and binding with absurd constants, and a count of the silences and recalls,
since nothing is shown by a run without any. Then faults that harm only silent nodes, each of which is found.
"""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Final

import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from reconverge.hub import headroom
from reconverge.kernel import COMPILED
from reconverge.kernel.reporting import silence
from reconverge.limit import (
    FIXED_WINDOW,
    GCRA,
    LEAKY_BUCKET,
    SLIDING_LOG,
    SLIDING_SLICES,
    SLIDING_WINDOW,
    SMOOTH_BURSTY,
    SMOOTH_WARMING_UP,
    TOKEN_BUCKET,
    Limit,
)
from reconverge.simulation.explore.events import COARSE, RECKLESS, Exploration
from reconverge.simulation.fuzz import CASES
from reconverge.simulation.reckless import ABSURD, PACKAGES, count_so_far, reckless
from reconverge_sync.merge import recalling
from tests.protocol.test_protocol import Protocol, limit_of
from tests.protocol.test_several import Several
from tests.protocol.test_tiers import Plans
from tests.support.aligned import twisted
from tests.support.effort import tried

in_python = pytest.mark.skipif(COMPILED, reason="the compiled kernel has its own constants of silence")
pytestmark = pytest.mark.timeout(1500)

INSTEAD: Final = {
    SLIDING_LOG: FIXED_WINDOW,
    SLIDING_SLICES: SLIDING_WINDOW,
    LEAKY_BUCKET: TOKEN_BUCKET,
    SMOOTH_BURSTY: GCRA,
    SMOOTH_WARMING_UP: SLIDING_WINDOW,
}
"""For the algorithms on which no node is silent, others."""


class Quiet(Protocol):
    """The same nodes, hub and network, with limits on which nodes may be silent."""

    def _begin(self, limit: Limit, twist: str, nodes: int) -> None:
        algorithm = INSTEAD.get(limit.algorithm)
        if algorithm is not None:
            limit = twisted(limit_of(limit.quota, limit.window, algorithm, limit.burst, soft=limit.soft), twist)
        super()._begin(limit, twist, nodes)


class QuietPlans(Plans, Quiet):
    """The same, with keys that change plans."""


MACHINES: Final[tuple[type[RuleBasedStateMachine], ...]] = (Quiet, QuietPlans, Several)


def values_of(name: str) -> set[int]:
    """The identities of the values that the modules of the project have under a name."""
    modules = [module for each, module in sys.modules.items() if each.partition(".")[0] in PACKAGES]
    return {id(vars(module)[name]) for module in modules if name in vars(module)}


@pytest.mark.skipif(not COMPILED, reason="there is no compiled kernel here")
def test_the_compiled_kernel_is_refused() -> None:
    """Its constants are macros, so nothing would be reckless."""
    with pytest.raises(RuntimeError, match="set RECONVERGE_NO_EXTENSIONS=1"), reckless():
        pass


@in_python
def test_each_constant_is_absurd_in_all_modules_for_the_time_of_the_block() -> None:
    """Those that import it have it under the same name."""
    names = [name for _, name in ABSURD]
    proper = {name: values_of(name) for name in names}

    with reckless():
        absurd = {name: values_of(name) for name in names}

        assert {name: {id(value)} for (_, name), value in ABSURD.items()} == absurd
    assert {name: values_of(name) for name in names} == proper
    assert vars(recalling)["REQUESTS_MIN"] == headroom.REQUESTS_MIN == 8


@in_python
def test_blocks_are_not_nested() -> None:
    """The inner one would end the outer one."""
    with reckless() as count, pytest.raises(RuntimeError, match="do not nest"), reckless():
        pass

    assert count.answers == 0
    assert count_so_far() == count


@in_python
def test_a_case_with_reckless_silences_has_no_world_with_proper_constants() -> None:
    """It would show nothing, and nothing would show that."""
    case = Exploration("fixed", 4, "strict", asking=False, more=(RECKLESS,))

    with pytest.raises(RuntimeError, match="needs reckless silences"):
        case.world()
    with case.constants():
        assert case.world().problems == []


@in_python
def test_a_silent_node_leaves_nine_tenths_of_its_headroom_unreported_for_half_of_a_window() -> None:
    """So that there is something to try; with the constants of production such a cell is never silent."""
    case = Exploration("fixed", 40, "strict", asking=False, window_s=3.0, more=(RECKLESS,))
    with case.constants() as count:
        world = case.world()
        world.hits(0)
        world.exchanges(0)
        (cell,) = world.table(0).cells.values()
        longest_ns, spare, below = world.table(0).silence_ns, cell.allowance - cell.used, silence.speaks_below(cell)
        silent = []
        for _ in range(spare):
            world.hits(0)
            silent.append(cell.comfortable)

    assert 1 == count.silences
    assert 1_500_000_000 == longest_ns
    assert 1 <= below <= spare // 10
    assert [True] * (spare - below) + [False] * below == silent


@in_python
@pytest.mark.slow
@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.__name__)
def test_the_protocol_keeps_its_promises_however_reckless_silence_is(machine: type[RuleBasedStateMachine]) -> None:
    """The network does its worst meanwhile, as ever."""
    examples = tried(15, long=250)

    with reckless() as count:
        run_state_machine_as_test(machine, settings=settings(max_examples=examples, stateful_step_count=50))

    assert count.silences >= examples, count


def ran(*words: str) -> str:
    """Returns the output of a command of the simulation, which must find no fault."""
    command = [sys.executable, "-m", *words, "--processes", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert 0 == done.returncode, done.stdout + done.stderr
    return done.stdout


def counted(what: str, output: str) -> int:
    """The last number before these words."""
    return int(re.findall(rf"([\d,]+) {what}", output)[-1].replace(",", ""))


@pytest.mark.slow
def test_random_fleets_keep_their_promises_however_reckless_silence_is() -> None:
    """In all modes of limits on a rate; within regions no node is silent."""
    seeds = tried(10, long=150)
    modes = [word for mode in CASES for word in ("--mode", mode)]
    output = ran("reconverge.simulation.fuzz", "--reckless", *modes, "--seeds", str(seeds))

    assert f"fuzz: {len(CASES) * seeds} passed, 0 failed" in output
    assert 10 * seeds <= counted(r"of [\d,]+ answers began a silence", output)
    assert 1 <= counted("recalls were heard", output)


def test_no_short_sequence_of_events_breaks_a_promise_however_reckless_silence_is() -> None:
    """From a silent node on, with every fault that there is."""
    start = [f"--start={name}" for name in ("hits 0", "exchanges 0", "hits all and exchanges 1")]
    kinds = [word for kind in ("fixed", "sliding", "tokens") for word in ("--kind", kind)]
    case = ["--policy", "strict", "--asking", "no", "--grain", COARSE, "--quota", "5", "--window", "3", *kinds]
    output = ran("reconverge.simulation.explore", "--more", RECKLESS, *case, *start, "--depth", str(tried(2, long=4)))

    assert "\n3 cases" in output
    assert 100 <= counted(r"of [\d,]+ states have a silent node", output)
    assert 10 <= counted("recalls were heard", output)


@pytest.mark.slow
def test_what_silent_nodes_do_are_steps_of_the_model() -> None:
    """The proof knows no constants of silence, and need not."""
    output = ran("reconverge.simulation.model", "--bind", "--reckless", "--runs", "8")

    assert " 0 were rejected" in output
    assert 10 <= counted(r"of [\d,]+ answers began a silence", output)
