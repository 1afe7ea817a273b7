"""Goal: commands say what they need, in words that can be typed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from tests.support.commands.processes import run
from tests.support.twin import PATHS, ROOT
from tests.support.waiting import eventually


def test_the_doctor_without_a_hub_says_that_none_is_set() -> None:
    """It used to check embedded://, which no agent uses by default, and to find nothing wrong."""
    done = run("doctor", COLUMNS="200")

    assert 0 == done.returncode
    assert "no hub is set" in done.stdout
    assert "1 warning." in done.stdout
    assert "    export RECONVERGE_HUB=redis://localhost:6379/0" in done.stdout.splitlines()


def test_the_doctor_tells_of_a_misspelt_variable() -> None:
    """It is why the hub is not set."""
    done = run("doctor", RECONVERGE_HUBB="redis://localhost")

    assert "did you mean RECONVERGE_HUB?" in done.stderr


def test_the_command_says_its_version() -> None:
    """`--version` prints it."""
    done = run("--version")

    assert (0, f"reconverge {version('reconverge')}\n") == (done.returncode, done.stdout)


def test_a_misspelt_setting_to_publish_is_told_before_what_is_missing_for_it(tmp_path: Path) -> None:
    """`lifetme` is why `lifetime` is not there."""
    (tmp_path / "fleet.toml").write_text("lifetme = 60\n")
    done = run(
        "settings",
        "publish",
        str(tmp_path / "fleet.toml"),
        "--hub",
        "redis://localhost",
        RECONVERGE_SETTINGS_SECRET="0123456789abcdef",  # noqa: S106  # a test's own
    )

    assert 2 == done.returncode
    assert "fleet.toml, line 1: lifetme: there is no such setting" in done.stderr
    assert "did you mean 'lifetime'?" in done.stderr


def children_of(pid: int) -> list[int]:
    """The processes that a process has started."""
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_sigterm_ends_a_simulation_with_all_that_it_has_started(tmp_path: Path) -> None:
    """Nothing is left: neither processes nor semaphores, of which Python would complain."""
    words = ["simulate", "--windows", "1000", "--nodes", "40", "--seeds", "40", "--processes", "2"]
    with (tmp_path / "errors").open("w+") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "reconverge.cli", *words],
            env={**os.environ, "PYTHONPATH": PATHS},
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )
        eventually(lambda: len(children_of(process.pid)) == 3, "two processes and the tracker of what they share run")
        children = children_of(process.pid)
        try:
            process.terminate()
            status = process.wait(60)
            eventually(lambda: not any(map(os.path.exists, (f"/proc/{each}" for each in children))), "all are gone")
        finally:
            for child in [process.pid, *children]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
        errors.seek(0)
        said = errors.read()

    assert 143 == status
    assert 1 == len(said.splitlines())
    assert said.startswith("reconverge: simulating ")
