"""Goal: what is judged is what happened: histories survive their processes, and a seed draws the same again.

Method: histories are written, torn and read; scenarios are drawn and compared.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from chaos.faults.fault import Fault, Killed, NodeKilled
from chaos.fleet.plan import Plan, Request
from chaos.judge.history import OK, UNKNOWN, Recorder, last_view, read_lives
from chaos.names import MERGED
from chaos.rivals.roster import RIVALS
from chaos.scenarios.catalogue import NAMES, scenario_of
from chaos.scenarios.scenario import Scenario
from chaos.scenarios.workload import draw
from reconverge.clock import SECOND_NS
from reconverge.kernel import Verdict
from reconverge.limit import Limit

README = Path(__file__).parents[2] / "chaos" / "README.md"
ADMITTED = Verdict(allowed=True, epoch=7, hub_ns=7_500_000_000, known=True)


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    """Of a node whose process is this one."""
    return Recorder(tmp_path, 3)


def decide(recorder: Recorder, key: str) -> None:
    recorder.decided("ours", ADMITTED, key=key, cost=2, t_ns=10, took_ns=5, wall_ns=7_400_000_000)


# -------------------------------------------------------------------- histories


def test_what_was_written_is_read(recorder: Recorder, tmp_path: Path) -> None:
    """Decisions, exchanges, views, and what the process said at its end."""
    decide(recorder, "ada")
    recorder.heard("ours", recorder.sent("ours", "account", 2), OK)
    recorder.write("view", who="ours", t=20, total=2, staleness_s=0.1)
    recorder.write("ages", who="ours", t=21, by_shard=[0.1, 0.2])
    recorder.write("end", who="ours", t=30, facts={"keys": 1})

    (life,) = read_lives(tmp_path.iterdir())

    assert ("ours", 3, os.getpid(), 2) == (life.who, life.node, life.pid, life.admitted)
    assert [("account", 2, OK)] == [(one.account, one.charged, one.outcome) for one in life.exchanges]
    assert [2] == [view.total for view in life.views]
    assert [(21, (0.1, 0.2))] == life.ages
    assert {"keys": 1} == life.facts


def test_of_a_killed_process_all_is_there_but_its_end(recorder: Recorder, tmp_path: Path) -> None:
    """An exchange without an end is one of which nobody knows; a line that was torn is none."""
    decide(recorder, "ada")
    recorder.sent("ours", "account", 2)
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes() + b'{"e":"decide","who":"ou')

    (life,) = read_lives([path])

    assert 2 == life.admitted
    assert [(UNKNOWN, None)] == [(one.outcome, one.heard_ns) for one in life.exchanges]
    assert life.facts is None


def test_an_event_that_nobody_knows_is_an_error(recorder: Recorder, tmp_path: Path) -> None:
    """A misspelt event must not go unjudged."""
    recorder.write("decided", who="ours")

    with pytest.raises(ValueError, match="decided"):
        read_lives(tmp_path.iterdir())


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # the child does nothing that a thread could hinder
def test_a_fork_writes_a_history_of_its_own(recorder: Recorder, tmp_path: Path) -> None:
    """The histories of parent and child do not mix."""
    decide(recorder, "parent")
    child = os.fork()
    if child == 0:
        decide(recorder, "child")
        os._exit(0)
    os.waitpid(child, 0)

    keys = {life.pid: life.decisions[0].key for life in read_lives(tmp_path.iterdir())}

    assert {os.getpid(): "parent", child: "child"} == keys


@pytest.mark.parametrize("key", ["k" * 1_000_000, "\ud800", "a\nb", "\x00"])
def test_whatever_a_key_is_it_can_be_written_down(recorder: Recorder, tmp_path: Path, key: str) -> None:
    """A long one by its hash, and the same one always alike."""
    decide(recorder, key)
    decide(recorder, key)
    decide(recorder, f"another {key}")

    (life,) = read_lives(tmp_path.iterdir())

    first, second, third = (one.key for one in life.decisions)
    assert first == second != third
    assert len(first) <= 64


def test_the_last_view_is_that_of_whoever_is_there(recorder: Recorder, tmp_path: Path) -> None:
    """Of a process that has ended there is none."""
    recorder.write("view", who="ours", t=20, total=2, staleness_s=0.1)
    recorder.write("view", who="ours", t=21, total=3, staleness_s=float("inf"))
    recorder.write("view", who="merged", t=22, total=9, staleness_s=0.1)
    (path,) = tmp_path.iterdir()

    assert 3 == getattr(last_view(path, "ours"), "total", None)
    recorder.write("end", who="ours", t=30, facts={})
    assert last_view(path, "ours") is None


# -------------------------------------------------------------------- what is drawn


def test_a_view_that_is_half_written_is_no_view_yet(recorder: Recorder, tmp_path: Path) -> None:
    """The process writes on while its history is read."""
    recorder.write("view", who="ours", t=1, total=3, staleness_s=0.1)
    (path,) = tmp_path.glob("*.jsonl")
    with path.open("ab") as file:
        file.write(b'{"e":"view","who":"ours","t":2,"tot')

    assert 3 == getattr(last_view(path, "ours"), "total", None)


def test_a_seed_draws_the_same_requests_again() -> None:
    """And another one others; all of them within the load, and in order."""
    scenario = scenario_of("hostile-keys", 1)
    shares = draw(scenario, 1)

    assert shares == draw(scenario, 1) != draw(scenario, 2)
    assert scenario.nodes == len(shares)
    assert all(list(share) == sorted(share) for share in shares)
    assert all(0 <= request.moment_ns < scenario.load_s * SECOND_NS for share in shares for request in share)


def test_a_mix_is_drawn_from_its_seed() -> None:
    """The server's data are lost with odd seeds, nodes killed with even ones: both together are excluded."""
    drawn = {seed: {type(spell.fault) for spell in scenario_of("mix", seed).spells} for seed in range(20)}

    assert scenario_of("mix", 5) == scenario_of("mix", 5)
    assert all(Killed not in faults for seed, faults in drawn.items() if seed % 2 == 0)
    assert all(NodeKilled not in faults for seed, faults in drawn.items() if seed % 2 == 1)
    assert any(_has(faults, Killed) for faults in drawn.values())
    assert any(_has(faults, NodeKilled) for faults in drawn.values())


def _has(faults: set[type[Fault]], kind: type[Fault]) -> bool:
    return kind in faults


@pytest.mark.parametrize("name", NAMES)
def test_every_scenario_has_somebody_to_catch_and_time_to_do_so(name: str) -> None:
    """A scenario that cannot fail proves nothing. Recovery is seen either under load, or when nobody asks any more."""
    scenario = scenario_of(name, 1)

    assert name == scenario.name
    assert scenario.rivals
    assert scenario.healed_s <= scenario.load_s - 1 or scenario.healed_s >= scenario.load_s + 0.5
    assert bool(scenario.beyond) == bool(scenario.beyond_why)


def test_the_catalogue_of_faults_is_covered() -> None:
    """Numbers 1 to 33."""
    assert set(range(1, 34)) == {scenario_of(name, 1).number for name in NAMES}


def test_a_scenario_promises_what_its_policy_does() -> None:
    """A tenth of 200 and one request for each of four nodes; strict nothing; and what is excluded comes on top."""
    balanced, strict = scenario_of("partition-one", 1), scenario_of("partition-half", 1)

    assert 24 == balanced.over_admission_max
    assert 0 == strict.over_admission_max
    assert 224 == scenario_of("failover", 1).over_admission_max


def test_a_plan_travels_unchanged() -> None:
    """It travels as one line, with anything in it."""
    plan = Plan(
        rivals_url="mqtt://localhost",
        shards=2,
        node=1,
        url="redis://localhost",
        directory="here",
        contestants=("ours", "merged"),
        program="thread",
        limit=Limit(10, 0.5),
        policy="strict",
        cold_allowance=0.0,
        interval_s=0.1,
        timeout_s=0.4,
        lease_s=30.0,
        silence_s=1.0,
        keys_max=10,
        flooded=(Limit(2, 1.0),),
        third_party=True,
        slots=6,
        slots_lease_s=1.2,
        alone=True,
        seed=7,
        obeys=True,
        agents=1,
        followed=(),
        load_ns=5,
        requests=(Request(3, "\ud800\n", 2),),
    )

    assert "\n" not in plan.as_line()
    assert plan == Plan.of_line(plan.as_line())


def test_what_is_lived_through_elsewhere_promises_the_same() -> None:
    """And there is time for an election, where members have to elect one who answers."""
    here, there = scenario_of("partition-one", 1), scenario_of("partition-one-on-mqtt", 1)

    assert (24, 24) == (here.over_admission_max, there.over_admission_max)
    assert 6.6 == pytest.approx(there.reconverges_in_s - here.reconverges_in_s)
    assert (False, True) == (here.guarded, there.guarded)


def test_the_names_of_scenarios_are_told_apart() -> None:
    """Results are kept under them."""
    scenarios: list[Scenario] = [scenario_of(name, 1) for name in NAMES]

    assert len(NAMES) == len({scenario.name for scenario in scenarios}) == len({one.claim for one in scenarios})


def test_the_readme_names_every_rival_and_each_is_caught_somewhere() -> None:
    """No rival is kept for nothing, nor has a name that readers of the results cannot look up."""
    caught = {rival.name for name in NAMES for rival in scenario_of(name, 1).rivals}
    named = set(re.findall(r"\*([a-z-]+)\*", README.read_text()))

    assert {MERGED, *RIVALS} == caught
    assert caught <= named
