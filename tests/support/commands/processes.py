"""The real command, and other programs, in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.support.twin import PATHS, ROOT


def run(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs `reconverge`, with no variables of ours in the environment but the given ones."""
    return run_python("-m", "reconverge", *map(str, words), **environment)


def run_python(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs Python in such an environment."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RECONVERGE_")}
    return subprocess.run(
        [sys.executable, *words],
        env={**kept, "PYTHONPATH": PATHS, **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
