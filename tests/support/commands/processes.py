"""The real command, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.support.twin import PATHS, ROOT


def run(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs `reconverge`, with nothing of ours in the environment but what is given."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RECONVERGE_")}
    return subprocess.run(
        [sys.executable, "-m", "reconverge", *map(str, words)],
        env={**kept, "PYTHONPATH": PATHS, **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
