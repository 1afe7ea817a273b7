"""Goal: chaos runs with real processes and servers are followed step by step.

Method: a file of a witness, the scenarios of the catalogue, and three of them with shorter faults.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.__main__ import main
from chaos.bound.command import PAGE
from chaos.bound.following import TAKEN_OVER
from chaos.bound.scenarios import KINDS, POLICIES, bound
from chaos.bound.witness import COMMANDS, Begun, Ended, Merge, read_commands
from chaos.faults.fault import Killed
from chaos.names import OURS
from chaos.requirements import missing
from chaos.scenarios.catalogue import NAMES, scenario_of
from chaos.scenarios.network import cut
from chaos.scenarios.scenario import Spell
from chaos.supervisor import run
from reconverge.simulation.model.bound.watching_hub import is_bound
from tests.chaos.test_chaos import SEED, needs, shortened


def test_a_script_that_writes_no_record_of_its_node_has_merged_nothing(tmp_path: Path) -> None:
    """One that fails, or whose batch is outdated, changes nothing; only the other batch of these two was merged.

    The first write of a script shows whether the server had memory for it.
    """
    header = rb"\x9c\x01\xa3n.0\xa1n%b\xa0\xa1g\x00\xcd\x03\xe8\xcd\x03\xe8\x00\x90\x00"
    sent = rb'1.5 [0 lo:1] "EVALSHA" "abc" "3" "ours:{0}:meta" "ours:{0}:nodes" "ours:{0}:accounts" "%b" ""'
    tried = rb'1.5 [0 lua] "HSET" "ours:{0}:meta" "schema" "9"'
    record = rb'1.5 [0 lua] "HSET" "ours:{0}:nodes" "n.0" "\x95\x07\x02\x01\x01\x00"'
    lines = [b"listens 5 6", sent % (header % rb"\x01"), tried, sent % (header % rb"\x02"), tried, record, b"ended 9"]
    (tmp_path / COMMANDS).write_bytes(b"\n".join(lines) + b"\n")
    (tmp_path / f"{COMMANDS}-full").write_bytes(b"\n".join(line for line in lines if line != tried) + b"\n")

    begun, failed, merge, ended = read_commands(tmp_path / COMMANDS, shard=0)
    _, _, of_full, _ = read_commands(tmp_path / f"{COMMANDS}-full", shard=0)

    assert (Begun(5, 6), Ended(9)) == (begun, ended)
    assert isinstance(failed, Merge)
    assert isinstance(merge, Merge)
    assert (("n.0", 1, 1_500_000, False), True) == (failed[:4], failed.unwritten)
    assert (("n.0", 2, 7, False), False) == (merge[:4], merge.unwritten)
    assert merge._replace(cramped=True) == of_full


def test_scenarios_are_followed_with_limits_of_the_model() -> None:
    """Each has a limit that the model has, with the faults and the number of requests of the catalogue."""
    for scenario in [scenario_of(name, SEED) for name in NAMES]:
        for kind in KINDS:
            for policy in POLICIES:
                ours = bound(scenario, kind, policy)
                assert is_bound(ours.limit, ours.policy)
                assert (scenario.spells, scenario.limit.quota) == (ours.spells, ours.limit.quota)


REAL = {
    "killed-empty": shortened("killed-empty", 3.0, Spell(Killed(), 1.0, 1.4)),
    "partition-one-on-mqtt": shortened("partition-one-on-mqtt", 3.0, *cut((0,), 1.0, 1.4)),
    "signal-storm": shortened("signal-storm", 3.0),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_no_step_of_a_real_run_is_rejected(name: str) -> None:
    """A Redis is killed, and comes back empty; a member of a broker is cut off; signals interrupt decisions."""
    scenario = bound(REAL[name], "fixed", "strict")
    needs(missing(scenario))

    outcome = run(scenario, SEED, (OURS,)).followed

    assert outcome is not None
    assert "" == outcome.run.rejected
    assert outcome.run.accepted["a batch is merged"] > 0


@pytest.mark.slow
def test_the_command_writes_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It prints a row for each run, and why one was not followed to its end; the page has a row for each scenario."""
    needs(missing(scenario_of("partition-one", SEED)))

    assert 0 == main(["bind", "partition-one", "failover", "--policy", "strict", "--results", str(tmp_path)])

    said = capsys.readouterr().out
    assert "| partition-one | fixed, strict | 4 |" in said
    assert f"| {TAKEN_OVER} |" in said
    assert "| partition-one | 1 |" in (tmp_path / PAGE).read_text()
