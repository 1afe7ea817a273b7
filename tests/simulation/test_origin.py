"""Figures say which commit they were made at, where that can be known."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from reconverge.simulation.studies.figures import commit_of


def git(place: Path, *arguments: str) -> str:
    """Runs git there, as a user that may commit."""
    identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(place), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A repository with some code of ours, all committed."""
    for root in ("agent", "sync"):
        (tmp_path / root).mkdir()
        (tmp_path / root / "code.py").write_text("pass\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", "agent", "sync")
    git(tmp_path, "commit", "--quiet", "--message", "All there is", "--date", "2026-11-21T12:00:00")
    return tmp_path


def test_in_a_clone_it_is_the_last_commit_and_its_date(clone: Path) -> None:
    """The commit is as short as git writes it."""
    assert git(clone, "log", "-1", "--format=%h, %cs") == commit_of(clone / "agent")


def test_changes_that_are_not_committed_are_told(clone: Path) -> None:
    """Of the code that a simulation runs; others do not matter."""
    (clone / "README.md").write_text("Hello\n")
    assert "changes" not in commit_of(clone / "agent")

    (clone / "sync" / "code.py").write_text("raise SystemExit\n")

    assert commit_of(clone / "agent").endswith(", with changes that are not committed")


def test_nothing_is_said_outside_of_a_clone(tmp_path: Path) -> None:
    """An installed package is no clone."""
    assert not commit_of(tmp_path)


def test_nothing_is_said_in_somebody_elses_clone(clone: Path) -> None:
    """Such as an environment within an application's repository, which does not know these files."""
    installed = clone / ".venv" / "site-packages"
    installed.mkdir(parents=True)
    (installed / "code.py").write_text("pass\n")

    assert not commit_of(installed)


def test_nothing_is_said_without_git(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is nothing that an installed package could ask for."""
    monkeypatch.setenv("PATH", "")

    assert not commit_of(clone / "agent")
