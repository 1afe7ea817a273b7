"""Goal: processes that the commands start import nothing that lies in the working directory.

Method: files that are called like modules of the standard library, and say so when they are imported.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.twin import PATHS

SIMULATES = """
from reconverge.simulation.studies.experiment import mapped
print(list(mapped(abs, [-1, -2], processes=2)))
"""
STARTS_NODES = """
import multiprocessing
from reconverge.runtime.process import nothing_from_the_working_directory
with nothing_from_the_working_directory():
    process = multiprocessing.get_context("spawn").Process(target=print, args=("started",))
    process.start()
process.join(60)
print(process.exitcode)
"""


@pytest.mark.parametrize(
    ("program", "printed"), [(SIMULATES, ["[1,", "2]"]), (STARTS_NODES, ["started", "0"])], ids=["pool", "node"]
)
def test_a_file_in_the_working_directory_takes_the_place_of_no_module(
    program: str, printed: list[str], tmp_path: Path
) -> None:
    """The started program works, and none of the files is imported."""
    for name in ("pickle", "random", "selectors", "socket", "tempfile"):
        (tmp_path / f"{name}.py").write_text("open('imported', 'w').close()\n", "utf-8")

    script = tmp_path / "bin" / "program"
    script.parent.mkdir()
    script.write_text("if __name__ == '__main__':" + program.replace("\n", "\n    "), "utf-8")

    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env={"PYTHONPATH": PATHS, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (printed, "") == (done.stdout.split(), done.stderr)
    assert not (tmp_path / "imported").exists()
