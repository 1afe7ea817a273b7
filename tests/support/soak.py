"""Random tests for hours, with examples and seeds that no earlier run has drawn. Run as `python -m tests.support.soak`.

Turns of the state machines, of the twins under random calls, and of the fuzz in all its modes follow each other until
the time is over. Each turn draws a seed of its own from the system, never those of CI. What fails is kept in
`tests/found.json`, and `tests/project/test_found.py` tries it again in every run of the tests.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import SystemRandom
from typing import Final, TypedDict

from reconverge.clock import SECOND_NS, SystemClock

ROOT: Final = Path(__file__).parents[2]
FOUND: Final = ROOT / "tests" / "found.json"
RANDOM_TESTS: Final = (
    "tests/protocol/test_protocol.py",
    "tests/protocol/test_bounds.py",
    "tests/protocol/test_several.py",
    "tests/protocol/test_slots.py",
    "tests/protocol/test_one_bucket.py",
    "tests/protocol/test_merge_twins.py",
    "tests/protocol/test_twins.py",
    "tests/protocol/test_explored.py",
    "tests/protocol/test_explored_twins.py",
    "tests/kernel",
)
"""The tests whose examples are drawn at random, the most important promises first."""
MODES: Final = ("safety", "liveness", "elected", "regions", "slots")
SEEDS_AT_ONCE: Final = 40
"""The seeds of a mode that are tried in a turn, which takes about as long as one of the state machines."""
SEED_MAX: Final = 2**31
TIMEOUT_S: Final = 3600
"""The timeout of a test, in seconds: its examples take minutes, or more on a busy machine; only a hang takes an
hour."""


class Found(TypedDict):
    """A failure, in a form to try again: a test with the seed of its examples, or a mode of the fuzz with a seed."""

    what: str
    seed: int


def command(found: Found) -> list[str]:
    if found["what"] in MODES:
        return [*_fuzz(found["what"], found["seed"], 1)]
    return _pytest(found["what"], found["seed"])


def _fuzz(mode: str, start: int, seeds: int) -> list[str]:
    arguments = ["--mode", mode, "--start", str(start), "--seeds", str(seeds)]
    return [sys.executable, "-m", "reconverge.simulation.fuzz", *arguments]


def _pytest(what: str, seed: int) -> list[str]:
    options = ["-q", "-p", "no:cacheprovider", f"--timeout={TIMEOUT_S}", f"--hypothesis-seed={seed}"]
    return [sys.executable, "-m", "pytest", *options, what]


def fresh_environment() -> dict[str, str]:
    """Returns the environment without settings that make the examples the same each time, and with all examples."""
    return {name: value for name, value in os.environ.items() if name != "CI"} | {"LONG": "1"}


def turns(random: SystemRandom) -> Iterator[list[str]]:
    """Yields the commands to run, one after the other, without end."""
    while True:
        for test, mode in zip(RANDOM_TESTS, (*MODES, *MODES), strict=False):
            yield _pytest(test, random.randrange(SEED_MAX))
            yield _fuzz(mode, random.randrange(SEED_MAX), SEEDS_AT_ONCE)


def failures(arguments: Sequence[str], output: str) -> list[Found]:
    """Lists the failures of a turn, by its output."""
    if "pytest" in arguments:
        seed = next(int(word.partition("=")[2]) for word in arguments if word.startswith("--hypothesis-seed"))
        return [{"what": test, "seed": seed} for test in re.findall(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)]
    mode = arguments[arguments.index("--mode") + 1]
    return [
        {"what": mode, "seed": int(seed)} for seed in re.findall(r"^python -m .*--start (\d+)", output, re.MULTILINE)
    ]


def keep(found: Sequence[Found]) -> None:
    """Adds failures to those that every run of the tests tries again."""
    known: list[Found] = json.loads(FOUND.read_text(encoding="utf-8"))
    known += [one for one in found if one not in known]
    FOUND.write_text(json.dumps(known, indent=2) + "\n", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs turn after turn until the time is over. Returns 1 if anything failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=120.0, help="for how long (default: %(default)s)")
    options = parser.parse_args(arguments)
    clock = SystemClock()
    ends_ns = clock.monotonic_ns() + int(60 * options.minutes * SECOND_NS)
    done = failed = 0
    for turn in turns(SystemRandom()):
        began_ns = clock.monotonic_ns()
        if began_ns >= ends_ns:
            break
        ran = subprocess.run(turn, cwd=ROOT, env=fresh_environment(), capture_output=True, text=True, check=False)
        took_s = (clock.monotonic_ns() - began_ns) // SECOND_NS
        done += 1
        print("passed" if ran.returncode == 0 else "FAILED", f"in {took_s} s:", *turn[2:], flush=True)
        if ran.returncode != 0:
            failed += 1
            keep(failures(turn, ran.stdout))
            print(ran.stdout[-20_000:], ran.stderr[-5_000:], flush=True)
    print(f"soak: {done} turns, {failed} failed, in {options.minutes:g} minutes")
    return 1 if failed or not done else 0


if __name__ == "__main__":
    sys.exit(main())
