"""The commit that figures were made at, which tells how old they are."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
CHANGEABLE: Final = ("agent", "sync")
"""What a simulation runs."""


def commit_of(place: Path = HERE) -> str:
    """The last commit and its date, and whether the code was changed since; empty where `place` is not in a clone."""
    try:
        _git(place, "ls-files", "--error-unmatch", ".")
        words = _git(place, "log", "-1", "--format=%h, %cs")
        changed = _git(place, "status", "--porcelain", "--", *(f":/{root}" for root in CHANGEABLE))
    except (OSError, subprocess.CalledProcessError):
        return ""  # installed, or without git
    return f"{words}, with changes that are not committed" if changed else words


def _git(place: Path, *arguments: str) -> str:
    command = ["git", "-C", str(place), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
