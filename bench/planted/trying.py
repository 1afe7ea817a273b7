"""Runs finders on a copy of the project that has a fault, and measures how long each takes to find it."""

# Theory of operation.
#
# A fault is planted into a copy of the project in a temporary directory, and never into the project itself. Each finder
# is a process of its own that imports the copy: PYTHONPATH comes before what is installed. The kernel is the one in
# Python, as the compiled one would lack the fault; Redis has its rule in Lua and lacks it too, so only those scenarios
# of chaos can show a fault of the merge rule whose hub is a node on a broker.
#
# The output of a finder goes to a file that is looked at a few times a second. The first line that shows a fault ends
# the process and the time. A process that crashes shows no fault: its last line is kept, to be read by a person.
#
# Time is that of processors, summed over all processes of the finder's session, so that other work on the machine
# changes little; but chaos waits more than it works, so its time is that of the clock.

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from bench.child import PURE, ROOT
from bench.planted.fault import PlantedFault
from bench.planted.finders import CHAOS, EXPLORATION, FinderCommand, command_of

COPIED: Final = ("agent", "sync", "tests", "chaos", "bench", "pyproject.toml", ".ci", ".tools")
LOOK_S: Final = 0.1
FOUND, NOT_FOUND, WHOLE, CRASHED, NOT_TRIED = "found", "not found", "whole", "crashed", "not tried"
ALSO_SOUND: Final = "found in sound code"
"""The outcome of a finder that reports a fault in sound code, too."""


class PlantedOutcome(NamedTuple):
    """The outcome of a finder: whether it has found the fault, its time, and the line that shows the fault."""

    status: str
    seconds: float
    words: str = ""


@contextmanager
def planted(fault: PlantedFault) -> Iterator[Path]:
    """Yields the directory of a copy of the project with the fault in it."""
    with tempfile.TemporaryDirectory(prefix="planted-") as name:
        root = Path(name)
        for each in COPIED:
            if (ROOT / each).is_dir():
                shutil.copytree(ROOT / each, root / each, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
            elif (ROOT / each).exists():
                shutil.copy(ROOT / each, root / each)
        for patch in fault.patches:
            patch.apply(root)
        yield root


def try_finder(finder: str, fault: PlantedFault, root: Path, seconds_max: float) -> PlantedOutcome:
    """Runs one finder on a copy of the project that has the fault."""
    before_s = 0.0
    while True:
        command = command_of(finder, fault)
        if command is None:
            return PlantedOutcome(NOT_TRIED, 0.0)
        outcome = _run(command, root, before_s, seconds_max)
        if outcome.status != WHOLE or not command.again:
            return outcome
        before_s = outcome.seconds


def try_both(finder: str, fault: PlantedFault, root: Path, seconds_max: float) -> PlantedOutcome:
    """Runs a finder on the fault; a search or a scenario that has found it must not find it in sound code.

    A search gets the same time for that, a scenario twice as much, in which it ends at least once.
    """
    outcome = try_finder(finder, fault, root, seconds_max)
    if finder not in (EXPLORATION, CHAOS) or outcome.status != FOUND:
        return outcome
    sound = fault._replace(patches=())
    with planted(sound) as sound_root:
        control = try_finder(finder, sound, sound_root, outcome.seconds * (1 if finder == EXPLORATION else 2))
    return outcome._replace(status=ALSO_SOUND) if control.status == FOUND else outcome


def _run(command: FinderCommand, root: Path, before_s: float, seconds_max: float) -> PlantedOutcome:
    output = root / "output"
    path = os.pathsep.join([str(root), str(root / "agent"), str(root / "sync")])
    environment = {name: value for name, value in os.environ.items() if name not in ("CI", "FAST", "LONG")}
    environment |= {"PYTHONPATH": path, PURE: "1", "PLANT": "1", "PYTHONUNBUFFERED": "1"}
    with output.open("w") as sink:
        process = subprocess.Popen(
            command.words, cwd=root, env=environment, stdout=sink, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            watch = Watch(process.pid, by_clock=command.by_clock, before_s=before_s)
            return _watched(process, command.shows, output, watch, seconds_max)
        finally:
            _end(process)


class Watch:
    """Measures the time of a finder by the processors or by the clock."""

    def __init__(self, session: int, *, by_clock: bool, before_s: float) -> None:
        self._session = session
        self._by_clock = by_clock
        self._began_s = time.monotonic()
        self._before_s = before_s
        self._used_s = 0.0

    def passed_s(self) -> float:
        """Returns the seconds so far. An ended process counts if its parent has waited for it."""
        if self._by_clock:
            return self._before_s + time.monotonic() - self._began_s
        self._used_s = max(self._used_s, used_by_session_s(self._session))
        return self._before_s + self._used_s


def used_by_session_s(session: int) -> float:
    """Returns the processor time of all processes of a session, and of their children that have ended."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        if int(fields[3]) == session:
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _watched(
    process: subprocess.Popen[bytes], shows: re.Pattern[str], output: Path, watch: Watch, seconds_max: float
) -> PlantedOutcome:
    while True:
        passed_s = watch.passed_s()
        ended = process.poll() is not None
        text = output.read_text(errors="replace")
        shown = shows.search(text)
        if shown is not None:
            return PlantedOutcome(FOUND, passed_s, shown[0].strip())
        last = (text.strip().splitlines() or [""])[-1]
        if ended:
            return PlantedOutcome(CRASHED if process.returncode else WHOLE, passed_s, last)
        if passed_s > seconds_max:
            return PlantedOutcome(NOT_FOUND, passed_s, last)
        time.sleep(LOOK_S)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a process and all processes that it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
