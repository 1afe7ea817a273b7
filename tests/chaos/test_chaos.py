"""Goal: real faults, on real processes and servers, are lived through; and rivals that are known to fail are caught.

Method: a few scenarios of the catalogue with shorter faults, as `python -m chaos` runs them; `make chaos` has them all.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from chaos.__main__ import main
from chaos.faults.fault import Dropped, Killed, NodeEnded
from chaos.faults.namespace import Namespace
from chaos.faults.proxy import ProxyDisobeyed, Toxic, Toxiproxy
from chaos.judge.verdict import Verdict
from chaos.names import OURS
from chaos.report import results
from chaos.requirements import missing
from chaos.scenarios.catalogue import scenario_of
from chaos.scenarios.network import cut, spell
from chaos.scenarios.scenario import Scenario, Spell
from chaos.supervisor import run
from tests.support.servers import free_port
from tests.support.waiting import eventually

ROOT = Path(__file__).parents[2]
SEED = 1
RUNS_MORE = 2
END_S = 30.0


def shortened(name: str, load_s: float, *spells: Spell) -> Scenario:
    """A scenario of the catalogue with shorter faults, and only those rivals that run beside ours."""
    scenario = scenario_of(name, SEED)
    rivals = tuple(rival for rival in scenario.rivals if not rival.alone)
    return replace(scenario, load_s=load_s, spells=spells, rivals=rivals)


QUICK = {
    "partition-all": shortened("partition-all", 3.0, *cut(None, 0.5, 1.7)),
    "replies-lost": shortened("replies-lost", 3.0, spell("timeout", "downstream", 0.5, 1.7, timeout=0)),
    "killed-empty": shortened("killed-empty", 3.0, Spell(Killed(), 1.0, 1.4)),
    "half-open": shortened("half-open", 3.5, Spell(Dropped(), 0.5, 2.0)),
    "terminated-nodes": shortened("terminated-nodes", 4.0, *(Spell(NodeEnded(n), 0.8 + n, 0.9 + n) for n in range(2))),
}


def judged(scenario: Scenario, *ours: str) -> Verdict:
    """The verdict on a scenario with its rivals.

    Faults come and go in real time: a rival that a busy machine has kept from meeting its fault proves nothing, and
    runs again without ours, whose promises are judged by the first run.
    """
    verdict, rivals = Verdict(scenario, SEED), scenario.contestants or scenario.loners
    verdict.add(run(scenario, SEED, (*ours, *rivals)))
    for _ in range(RUNS_MORE):
        if verdict.missed:
            verdict.add(run(scenario, SEED, rivals))
    return verdict


@cache
def lived_through(name: str) -> Verdict:
    """The verdict on one of these, run once for all tests."""
    return judged(QUICK[name], OURS)


def needs(lacking: str) -> None:
    """Leave a test out where the machine lacks something; on CI it fails instead."""
    if lacking and not os.environ.get("CI"):
        pytest.skip(lacking)
    assert "" == lacking


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_ours_keeps_its_promises_and_rivals_are_caught(name: str) -> None:
    """Side by side, asked the same, on the same network."""
    needs(missing(QUICK[name]))

    verdict = lived_through(name)

    assert [] == verdict.found[OURS]
    assert [] == verdict.missed
    assert verdict.figures[OURS]["decisions"] > 1000
    assert verdict.figures[OURS]["exchanges"]["ok"] > 20


@pytest.mark.slow
def test_a_blocking_rival_is_caught_by_itself() -> None:
    """Whoever asks the server about each request does input and output; it runs alone, as it holds others up."""
    scenario = shortened("partition-all", 2.0, *cut(None, 0.5, 1.0))
    needs(missing(scenario))
    verdict = Verdict(scenario, SEED)

    verdict.add(run(scenario, SEED, ("asking",)))

    assert "input-output" in {violation.kind for violation in verdict.found["asking"]}


@pytest.mark.slow
def test_results_are_kept_and_can_be_read(tmp_path: Path) -> None:
    """A file, a table and a page; the page shows the scenario's picture and needs nothing from elsewhere."""
    needs(missing(QUICK["terminated-nodes"]))
    verdict = lived_through("terminated-nodes")

    results.keep(verdict, tmp_path, results.circumstances())
    results.write_overview(tmp_path, [verdict.scenario.name])

    table, page = ((tmp_path / name).read_text() for name in (results.TABLE, results.PAGE))
    assert "| 17 | terminated-nodes | 0/0 |" in table
    assert "1 of 1 scenarios kept every promise; 1 of 1 rivals were caught." in table
    assert 1 == page.count("<svg")
    assert "http" not in page.replace("https://www.w3.org", "")


def test_the_list_names_every_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    """With what it claims, and whom it catches."""
    assert 0 == main(["list"])

    said = capsys.readouterr().out
    assert "partition-half" in said
    assert "catches merged (over-admission)" in said


# -------------------------------------------------------------------- tools


@pytest.mark.slow
async def test_a_toxiproxy_that_does_not_obey_is_found_out(tmp_path: Path) -> None:
    """A toxic that does not exist, a wire that cannot be made: its client would say nothing, or something else."""
    needs(Toxiproxy.missing())

    with Toxiproxy(tmp_path / "log") as proxies:
        wire = await proxies.wire("wire", free_port())
        with pytest.raises(ProxyDisobeyed):
            await wire.add(Toxic("nonsense", "upstream"))
        with pytest.raises(ProxyDisobeyed):
            await proxies.wire("wire", free_port())
        with pytest.raises(ProxyDisobeyed):
            await wire.remove(Toxic("timeout", "upstream"))


@pytest.mark.slow
async def test_a_wire_can_be_cut_and_led_elsewhere(tmp_path: Path) -> None:
    """And what was done to it is what the server says of it."""
    needs(Toxiproxy.missing())

    with Toxiproxy(tmp_path / "log") as proxies:
        wire = await proxies.wire("wire", free_port())
        await wire.disable()
        assert not (await proxies.state("wire"))["enabled"]
        await wire.enable()
        await wire.add(Toxic("timeout", "upstream", {"timeout": 0}))
        await wire.lead_to(4711)
        state = await proxies.state("wire")

    assert (True, "127.0.0.1:4711", wire.port) == (
        state["enabled"],
        state["upstream"],
        int(state["listen"].rpartition(":")[2]),
    )


def test_a_namespace_is_a_network_of_its_own() -> None:
    """Nothing of the machine's is in it, and a rule that makes no sense is refused."""
    needs(Namespace.missing())

    with Namespace() as namespace:
        namespace.run(["sh", "-c", "test $(ip -o link | wc -l) = 1"])
        with pytest.raises(subprocess.CalledProcessError):
            namespace.drop("nonsense", ["drop everything"])


# -------------------------------------------------------------------- ends


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_whatever_ends_it_nothing_is_left_behind(number: signal.Signals, short_path: Path) -> None:
    """Neither a server nor a node, when it is interrupted or killed; nor a file, if it has a chance to see to that."""
    needs(missing(scenario_of("partition-one", SEED)))
    command = [sys.executable, "-m", "chaos", "run", "partition-one"]
    there = {**os.environ, "TMPDIR": str(short_path)}
    with subprocess.Popen(command, cwd=ROOT, env=there, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        eventually(lambda: len(_descendants(process.pid)) >= 6, "Redis, Toxiproxy and four nodes")
        left = _descendants(process.pid)

        process.send_signal(number)

        assert process.wait(END_S) in (128 + signal.SIGINT, -signal.SIGKILL)
    eventually(lambda: not [pid for pid in left if _is_there(pid)], "all are gone")
    assert number == signal.SIGKILL or [] == list(short_path.iterdir())


def _descendants(pid: int) -> list[int]:
    # A child is its parent's thread's, whichever thread that was.
    children = [int(child) for each in Path(f"/proc/{pid}/task").glob("*/children") for child in _read(each).split()]
    return children + [one for child in children for one in _descendants(child)]


def _is_there(pid: int) -> bool:
    """Whether that process is there, and not merely waiting for somebody to take note of its end."""
    state = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return bool(state) and state[0] != "Z"


def _read(path: str | Path) -> str:
    try:
        return Path(path).read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
