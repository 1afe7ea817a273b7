"""Run other projects' own tests, first on their storages and then on ours, and say where the outcomes differ.

    python -m tests.integrations.upstream                         # sdists from PyPI, into a temporary directory
    python -m tests.integrations.upstream --checkout slowapi=DIR  # slowapi has its tests in its repository only

Needs the packages of the extra `test`, pip, and the ports 7379 and 46379, which those tests have written in them.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Final, NamedTuple
from xml.etree import ElementTree as ET

from tests.support.servers import RedisServer

ROOT: Final = Path(__file__).parents[3]
PORTS: Final = (7379, 46379)
NEEDED: Final = (
    *(
        "aniso8601",
        "dnspython",
        "flask-restful",
        "hiro",
        "mock",
        "pymemcache",
        "pymongo",
        "pytest-asyncio",
        "pytest-check",
    ),
    *("pytest-lazy-fixtures", "pytest-mock", "pytz", "six", "valkey", "django-redis"),
)
"""The packages that their tests import, beside the one that they test."""
RUN_S_MAX: Final = 900


class Suite(NamedTuple):
    """A project's tests, as far as they are about what a storage does."""

    project: str
    tests: tuple[str, ...]
    select: str = ""


SUITES: Final = (
    Suite(
        "limits",
        ("tests/test_strategy.py", "tests/test_storage.py", "tests/storage", "tests/aio", "tests/integration"),
        "not (memcached or cluster or sentinel or mongodb or valkey or ssl or uds)",
    ),
    Suite("flask-limiter", ("tests",)),
    Suite("slowapi", ("tests",)),
    Suite("django-ratelimit", ("django_ratelimit/tests.py",)),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("projects", nargs="*", help="of " + ", ".join(suite.project for suite in SUITES))
    parser.add_argument("--checkout", action="append", default=[], metavar="PROJECT=DIR", help="a source tree at hand")
    parser.add_argument("--policy", default="balanced", help="how much a node dares")
    parser.add_argument("--align", default="clock", help='where fixed windows begin: "clock" or "first-hit"')
    arguments = parser.parse_args()
    at_hand = dict(checkout.split("=", 1) for checkout in arguments.checkout)
    with tempfile.TemporaryDirectory(prefix="reconverge-upstream-") as name, servers():
        directory = Path(name)
        pip("install", "--no-deps", "--target", str(directory / "extra"), *NEEDED)
        print("| project | pass on their storages | of those, on ours |\n|---|---|---|")
        for suite in SUITES:
            if arguments.projects and suite.project not in arguments.projects:
                continue
            if suite.project == "slowapi" and suite.project not in at_hand:
                print("| slowapi | its sdist has no tests: --checkout slowapi=DIR | |")
                continue
            place = Path(at_hand[suite.project]) if suite.project in at_hand else fetch(suite.project, directory)
            theirs = passed(suite, place, directory, "theirs")
            ours = passed(suite, place, directory, f"{arguments.policy} {arguments.align}")
            print(f"| {suite.project} {version(suite.project)} | {len(theirs)} | {len(theirs & ours)} |")
            for test in sorted(theirs - ours):
                print("not on ours:", test)
            for test in sorted(ours - theirs):
                print("on ours only:", test)


@contextmanager
def servers() -> Iterator[None]:
    """The two servers that their tests expect."""
    with RedisServer(port=PORTS[0]), RedisServer(port=PORTS[1]):
        yield


def pip(*words: str) -> None:
    """Run pip. Raises CalledProcessError."""
    subprocess.run([sys.executable, "-m", "pip", "--quiet", *words], check=True)


def fetch(project: str, directory: Path) -> Path:
    """The unpacked sdist of what is installed."""
    place = directory / project
    pip("download", "--no-deps", "--no-binary", ":all:", "--dest", str(place), f"{project}=={version(project)}")
    (archive,) = place.glob("*.tar.gz")
    with tarfile.open(archive) as sources:
        sources.extractall(place, filter="data")
    return next(path for path in place.iterdir() if path.is_dir())


def passed(suite: Suite, place: Path, directory: Path, storage: str) -> set[str]:
    """The tests that pass, on `theirs`, or on ours with a policy and an alignment of those names."""
    report = directory / f"{suite.project}-{storage}.xml"
    paths = [ROOT / "agent", ROOT / "sync", directory / "extra", ROOT / "tests" / "integrations" / "upstream"]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "UPSTREAM_STORAGE": storage,
        "ASYNC_REDIS_IMPLEMENTATION": "redispy",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "reconverge_upstream"]
    command += ["-o", "addopts=", "-o", "filterwarnings=", "-o", "asyncio_mode=auto", f"--junitxml={report}"]
    command += ["-k", suite.select] if suite.select else []
    log = directory / f"{suite.project}-{storage}.log"
    with log.open("wb") as out:
        subprocess.run(
            [*command, *suite.tests],
            cwd=place, env=environment, stdout=out, stderr=out, timeout=RUN_S_MAX, check=False,
        )  # fmt: skip
    if not report.exists():
        raise SystemExit(log.read_text())
    cases = ET.parse(report).iter("testcase")  # noqa: S314  # our own report
    return {f"{case.get('classname')}::{case.get('name')}" for case in cases if not list(case.iter())[1:]}


main()
