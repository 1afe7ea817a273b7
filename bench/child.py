"""Runs measurements in a process of their own, so that memory and caches do not mix."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parent.parent
CHILD_S_MAX: Final = 1800.0
PURE: Final = "RECONVERGE_NO_EXTENSIONS"
"""The environment variable that makes Python decide alone, without the compiled kernel."""


class Missing(Exception):
    """Raised if a program or package for a measurement is missing."""


def in_a_process(module: str, task: dict[str, Any], *, pure: bool = False) -> Any:
    """Runs `module` with `task` in a new process.

    Returns its result. Raises Missing if that lacks something or fails.
    """
    environment = {name: value for name, value in os.environ.items() if name != PURE}
    path = [str(ROOT), str(ROOT / "agent"), str(ROOT / "sync"), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    command = [sys.executable, "-m", module, json.dumps(task)]
    ran = subprocess.run(
        command,
        env=environment | ({PURE: "1"} if pure else {}),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        timeout=CHILD_S_MAX,
        check=False,
    )
    if ran.returncode != 0:
        raise Missing(f"it failed with status {ran.returncode}")  # its last words are on the standard error
    answer = json.loads(ran.stdout.splitlines()[-1])
    if "missing" in answer:
        raise Missing(answer["missing"])
    return answer["found"]


def answer(work: Any) -> int:
    """Runs `work` in the child process with the task of the command line, and prints the result."""
    task = json.loads(sys.argv[1])
    try:
        found = {"found": work(**task)}
    except Missing as error:
        found = {"missing": str(error)}
    print(json.dumps(found), flush=True)
    return 0
