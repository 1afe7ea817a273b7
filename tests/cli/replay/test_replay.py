"""`reconverge replay`, on real processes that share a real Redis."""

from __future__ import annotations

import csv
import gzip
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands.checked import say_here
from tests.support.commands.simulated import is_png, needs_other_files
from tests.support.effort import tried
from tests.support.servers import RedisServer, free_port
from tests.support.waiting import eventually

pytestmark = pytest.mark.slow  # recordings are replayed by processes

DATA = Path(__file__).parents[3] / "examples" / "data"
MISTAKE, INTERRUPTED = 2, 130
NODES = tried(2, long=4)
"""Of most runs: each node is a process, which takes half a second of processor time before it decides anything."""
HALF = NODES // 2
FIELDS = {
    "requests",
    "admitted",
    "refused",
    "ideal_admitted",
    "over_admission_max_pct",
    "over_admission_mean_pct",
    "under_admission_pct",
    "falsely_refused_pct",
    "bound_pct",
    "hub_total",
    "hub_total_equals_admitted",
    "debt_max_pct",
    "decision_p50_ns",
    "decision_p99_ns",
    "floor_p50_ns",
    "floor_p99_ns",
    "decisions_per_s_per_node",
    "sync_messages",
    "nodes",
    "policy",
    "sync_interval_s",
}


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first ten minutes of the recorded chat service."""
    return sliced("llm-conv-2023.csv.gz", 2500, tmp_path_factory.mktemp("recordings"))


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A minute in which one key is asked for a hundred times a second."""
    path = tmp_path_factory.mktemp("recordings") / "crowd.csv"
    path.write_text("t_s,client\n" + "".join(f"{number / 100},crowd\n" for number in range(6000)))
    return path


def sliced(name: str, rows: int, directory: Path) -> Path:
    """The first rows of one of the recordings."""
    path = directory / name.removesuffix(".gz")
    with gzip.open(DATA / name, "rt", newline="") as recorded, path.open("w", newline="") as out:
        csv.writer(out).writerows(islice(csv.reader(recorded), rows + 1))
    return path


def command(*arguments: object) -> list[str]:
    """The command line."""
    return [sys.executable, "-m", "reconverge.cli", *map(str, arguments)]


def replayed(*arguments: object, status: int = 0) -> dict[str, Any]:
    """The figures of a run."""
    done = subprocess.run(command("replay", *arguments, "--json"), capture_output=True, text=True, check=False)

    assert status == done.returncode, done.stderr
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def test_strict_is_never_over_and_naive_is_with_half_of_the_nodes_cut_off(crowd: Path) -> None:
    """In one run, on the same requests; and no count is lost or doubled by the cut."""
    compared = replayed(
        *(crowd, "--limit", "300/10s", "--key", "client", "--speed", 6, "--nodes", NODES, "--cut", f"{HALF}@3s+4s"),
        *("--policy", "strict", "--policy", "balanced", "--policy", "naive"),
    )["policies"]

    assert all(each.keys() >= FIELDS for each in compared.values())
    assert 0 == compared["strict"]["over_admission_max_pct"]
    assert 0 == compared["balanced"]["bound_violations"]
    assert compared["balanced"]["known_over_admission_max_pct"] <= compared["balanced"]["known_bound_pct"]
    assert compared["naive"]["over_admission_max_pct"] > 50
    assert all(each["hub_total_equals_admitted"] for each in compared.values())
    assert all(each["failures"] for each in compared.values())


def test_strict_is_never_over_with_all_nodes_cut_off(crowd: Path) -> None:
    """Nobody hears anything for four windows."""
    figures = replayed(
        *(crowd, "--limit", "300/10s", "--key", "client", "--speed", 6, "--nodes", NODES),
        *("--cut", "all@3s+5s", "--policy", "strict"),
    )

    assert 0 == figures["over_admission_max_pct"]
    assert figures["admitted"] > 0
    assert figures["hub_total_equals_admitted"]


def test_costs_are_reserved_and_settled_and_the_total_is_exact(chat: Path) -> None:
    """The context is known before, what is generated only after; settling drives keys into debt, and that is told."""
    compared = replayed(
        *(chat, "--limit", "120000/minute", "--key", "*", "--cost", "context_tokens", "--settle", "generated_tokens"),
        *("--speed", 60, "--policy", "balanced", "--policy", "strict", "--nodes", NODES, "--cut", f"{HALF}@3s+2s"),
    )["policies"]

    assert all(each["hub_total_equals_admitted"] for each in compared.values())
    assert 0 == compared["strict"]["over_admission_max_pct"]
    assert 0 == compared["balanced"]["bound_violations"]
    assert compared["balanced"]["admitted_cost"] > compared["balanced"]["admitted"]


def test_requests_about_new_keys_are_admitted_when_they_ask(tmp_path: Path) -> None:
    """From memory strict refuses each client that a node has not heard of; asking, it admits them, after some ms."""
    path = tmp_path / "clients.csv"
    path.write_text("t_s,client\n" + "".join(f"{number / 100},client-{number}\n" for number in range(200)))
    run = (path, "--limit", "5/10s", "--key", "client", "--speed", 1, "--nodes", 2, "--policy", "strict")

    unasked, asked = replayed(*run), replayed(*run, "--in-doubt", "ask:500ms")

    assert (0.0, 0) == (unasked["asked_pct"], unasked["admitted"])
    assert (100.0, 200) == (asked["asked_pct"], asked["admitted"])
    assert 0.0 < asked["waited_median_ms"] <= asked["waited_p99_ms"] <= asked["waited_max_ms"]
    assert asked["hub_total_equals_admitted"]


def test_no_bound_is_broken_by_requests_that_ask_and_nothing_is_lost(chat: Path) -> None:
    """With costs that are settled later, nodes that are cut off, and requests too large to be admitted."""
    compared = replayed(
        *(chat, "--limit", "12000/minute", "--key", "*", "--cost", "context_tokens", "--settle", "generated_tokens"),
        *("--speed", 60, "--policy", "balanced", "--policy", "strict", "--nodes", NODES, "--cut", f"{HALF}@3s+2s"),
        *("--in-doubt", "ask:25ms", "--algorithm", "sliding-slices"),
    )["policies"]

    assert all(each["hub_total_equals_admitted"] for each in compared.values())
    assert 0 == compared["strict"]["over_admission_max_pct"]
    assert 0 == compared["balanced"]["bound_violations"]
    assert all(each["asked_pct"] > 0 for each in compared.values())


def test_costs_that_could_never_be_admitted_are_refused(tmp_path: Path) -> None:
    """A recording may hold larger requests than the limit; the run goes on."""
    path = tmp_path / "large.csv"
    path.write_text("t_s,cost\n" + "".join(f"{number / 10},{5 if number % 2 else 5000}\n" for number in range(40)))

    figures = replayed(path, "--limit", "1000/10s", "--key", "*", "--cost", "cost", "--speed", 2, "--nodes", 2)

    assert 40 == figures["requests"]
    assert 20 == figures["admitted"]
    assert 100 == figures["hub_total"]


def test_a_key_stays_on_one_node_when_spread_by_hash(tmp_path: Path) -> None:
    """Then even naive is exact."""
    path = tmp_path / "one.csv"
    path.write_text("t_s,client\n" + "".join(f"{number / 50},ada\n" for number in range(200)))

    figures = replayed(
        *(path, "--limit", "50/2s", "--key", "client", "--policy", "naive", "--speed", 1),
        *("--nodes", NODES, "--spread", "hash"),
    )

    assert 0 == figures["over_admission_max_pct"]
    assert figures["refused"] > 0


def test_a_redis_of_ones_own_will_do(redis_server: RedisServer, tmp_path: Path) -> None:
    """With a wire in between, too; nothing is left there that does not expire."""
    path = tmp_path / "few.csv"
    path.write_text("t_s\n" + "".join(f"{number / 20}\n" for number in range(60)))

    figures = replayed(
        *(path, "--limit", "30/1s", "--key", "*", "--speed", 1, "--hub", redis_server.url),
        *("--nodes", NODES, "--cut", "1@0.5s+0.5s"),
    )

    assert figures["hub_total_equals_admitted"]
    assert 60 == figures["requests"]


def test_people_get_a_table_and_a_verdict(tmp_path: Path) -> None:
    """The output is clean: progress goes to the error stream."""
    path = tmp_path / "few.csv"
    path.write_text("t_s\n" + "".join(f"{number / 20}\n" for number in range(40)))

    done = subprocess.run(
        command("replay", path, "--limit", "30/1s", "--key", "*", "--speed", 1),
        capture_output=True,
        text=True,
        check=False,
    )

    assert 0 == done.returncode
    assert "reconverge: replaying 40 requests on 4 processes takes about 2 s" == done.stderr.splitlines()[0]
    assert "balanced: kept its bound in every window" in done.stdout.replace("\n", " ")
    assert "nothing lost, nothing doubled." in done.stdout.replace("\n", " ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--key", "user"], "has no column 'user'; its columns: t_s, client"),
        (["--in-doubt", "wait:5ms"], "in_doubt='wait:5ms': is neither 'refuse' nor a time to ask within"),
        (
            ["--in-doubt", "ask:5ms", "--policy", "naive"],
            "has an effect only with a policy that grants allowances; add one with --policy",
        ),
        (["--policy", "lenient"], "policy='lenient': is no policy; known: strict, balanced"),
        (["--limit", "many/minute"], "limit 'many/minute', at character 1: expected a number"),
        (["--limit", "1/s, 2/m"], "several quotas, where one is expected"),
        (["--slices", "5", "--algorithm", "sliding-log"], "slices go with sliding-slices"),
        (["--cut", "9@1s+1s"], "cuts off 9 nodes of 4"),
        (["--cut", "2@1s+1s", "--hub", "rediss://localhost"], "nodes can only be cut off from"),
        (["--speed", "1e5"], "leaves a window of 0.1 ms"),
        (["--speed", "0"], "must be above 0"),
        (["--hub", "memory://"], "is private to one process"),
        (["--hub", "carrier-pigeon://loft"], "no hub is known for 'carrier-pigeon'"),
        (["--sync-interval", "0"], "sync_interval=0"),
        (["--nodes", "0"], "Invalid value for '--nodes'"),
    ],
)
def test_a_mistake_is_told_in_a_sentence(crowd: Path, arguments: list[str], said: str) -> None:
    """No traceback, and nothing on the output."""
    given = ["--limit", "300/10s", "--key", "client"]
    for name, value in zip(arguments[::2], arguments[1::2], strict=True):
        if name in given:
            given[given.index(name) + 1] = value
        else:
            given += [name, value]

    done = say_here("replay", str(crowd), *given)

    assert MISTAKE == done.status
    assert said in " ".join(done.stderr.replace("│", " ").split())
    assert "Traceback" not in done.stderr
    assert not done.stdout


def test_a_hub_that_is_not_there_is_told_before_anything_is_run(crowd: Path) -> None:
    """The run would mean nothing."""
    done = subprocess.run(
        command("replay", crowd, "--limit", "9/s", "--key", "client", "--hub", f"redis://127.0.0.1:{free_port()}"),
        capture_output=True,
        text=True,
        check=False,
    )

    assert MISTAKE == done.returncode
    assert done.stderr.startswith("reconverge: refused: ")
    assert "Traceback" not in done.stderr


@pytest.fixture
def running(crowd: Path, short_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A run that takes a minute, under way; its temporary files are in a directory of their own."""
    environment = os.environ | {"TMPDIR": str(short_path), "XDG_RUNTIME_DIR": ""}
    with subprocess.Popen(
        command("replay", crowd, "--limit", "300/10s", "--key", "client", "--speed", 1, "--cut", "2@1s+50s"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    ) as process:
        eventually(lambda: len(nodes_of(process)) == 4, "four nodes run")
        yield process
        process.kill()


def nodes_of(process: subprocess.Popen[str]) -> list[int]:
    """The processes of a fleet's nodes."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    found = [int(pid) for pid in children.read_text().split()] if children.exists() else []
    return [pid for pid in found if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


@pytest.mark.parametrize("whole_group", [False, True])
def test_an_interrupt_ends_it_at_once_and_leaves_nothing_behind(
    running: subprocess.Popen[str], short_path: Path, whole_group: bool
) -> None:
    """Ctrl-C reaches all processes of a terminal, a signal from a script only one."""
    nodes = nodes_of(running)
    if whole_group:
        os.killpg(running.pid, signal.SIGINT)
    else:
        running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=60)

    assert INTERRUPTED == running.returncode
    assert "Traceback" not in err
    assert not out
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in nodes), "all nodes are gone")
    eventually(lambda: not list(short_path.glob("reconverge-links-*")), "the wires are gone")


def test_a_node_that_is_lost_is_told_and_ends_the_run(running: subprocess.Popen[str]) -> None:
    """Its history is gone, so the run cannot be judged."""
    nodes = nodes_of(running)
    os.kill(nodes[0], signal.SIGKILL)
    _, err = running.communicate(timeout=60)

    assert MISTAKE == running.returncode
    assert "a node of the replay ended with status -9, so its results are lost; try again" in err
    assert "Traceback" not in err
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in nodes), "all nodes are gone")


@pytest.mark.parametrize("ending", [".png", ".html"])
def test_the_busiest_key_is_drawn(crowd: Path, tmp_path: Path, ending: str) -> None:
    """A page has the figures beside the picture, and needs no other file."""
    plot = tmp_path / f"crowd{ending}"
    run = (crowd, "--limit", "300/10s", "--key", "client", "--speed", 12)
    replayed(*run, "--nodes", NODES, "--cut", f"{HALF}@1s+1s", "--plot", plot)

    if ending == ".png":
        assert is_png(plot)
    else:
        assert "declared bound there" in plot.read_text()
        assert [] == needs_other_files(plot.read_text())


def test_a_picture_that_cannot_be_written_is_told_before_anything_is_replayed(crowd: Path, tmp_path: Path) -> None:
    """With status 2, and the name of the file."""
    words = (crowd, "--limit", "300/10s", "--key", "client", "--plot", tmp_path / "crowd.gif")
    done = subprocess.run(command("replay", *words), capture_output=True, text=True, check=False)

    assert 2 == done.returncode
    assert "must end in .png or .html" in done.stderr
    assert "replaying" not in done.stderr
