"""Goal: whoever installs the project has the compiled kernel where one can be built, and a working one everywhere.

Method: virtual environments that are made for the test, compilers that work and one that does not, a wheel, a source
distribution, and every Python that is found; in each, a program that decides.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # wheels are built

ROOT = Path(__file__).parents[2]
SOURCES = ("agent", "sync", "pyproject.toml", "setup.py", "README.md", "LICENSE")
NATIVE = ROOT / "agent" / "reconverge" / "kernel" / "native"
PYTHONS = ("python3.11", "python3.12", "python3.13", "python3.14")
RUNNING = "python{}.{}".format(*sys.version_info)
BUILD_S = 300
QUICKSTART = (ROOT / "examples" / "quickstart.py").read_text()
NOTICE = "the compiled kernel is missing"

DECIDES = """
import logging
logging.basicConfig(format="%(levelname)s %(message)s")
from reconverge import Agent, Limit
from reconverge.clock import ManualClock

agents = [Agent("memory://", clock=ManualClock(1_750_000_000.0)) for _ in range(2)]
for algorithm in ("fixed-window", "sliding-window", "token-bucket", "sliding-log", "leaky-bucket"):
    limiter = agents[0].limit(algorithm, Limit(10, 60, algorithm=algorithm))
    assert 10 == sum(limiter.allow("ada") for _ in range(15)), algorithm
    decision = limiter.hit("ada")
    assert (False, 10, 0) == (decision.allowed, decision.limit, decision.remaining), decision
    assert 0 < decision.retry_after <= decision.reset_after, decision
    limiter.refund("ada", 3)
    assert limiter.allow("ada", cost=3)
print(agents[0].stats().kernel)
"""


class Environment:
    """A virtual environment, and what happens in it."""

    def __init__(self, place: Path, python: str = sys.executable) -> None:
        self.place = place
        self._installed: tuple[Path, dict[str, str]] | None = None
        # Without a pip of its own: to set one up takes four seconds of processor time, and that of the tests will do.
        self._run([python, "-m", "venv", "--without-pip", str(place)], {})
        self.pip("install", "--no-compile", "setuptools>=77")

    def pip(self, *arguments: str, **environment: str) -> None:
        command = [sys.executable, "-m", "pip", "--python", str(self.place / "bin" / "python")]
        command += ["--disable-pip-version-check", "--quiet"]
        self._run([*command, *arguments], environment)

    def installs(self, what: Path, **environment: str) -> None:
        """Install that in place of what was installed before, with what is needed to build it there already.

        What was installed last, in the same way, is there; and programs that run once need no bytecode of all modules.
        """
        if self._installed != (what, environment):
            how = ("--force-reinstall", "--no-deps", "--no-build-isolation", "--no-compile")
            self.pip("install", *how, str(what), **environment)
            self._installed = what, environment

    def runs(self, program: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a program, out of reach of any source tree."""
        return self._run([str(self.place / "bin" / "python"), "-c", program], environment)

    def _run(self, command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
        ours = ("PYTHON", "RECONVERGE", "COV")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        done = subprocess.run(
            command,
            env={**kept, **environment},
            cwd=self.place.parent,
            capture_output=True,
            text=True,
            timeout=BUILD_S,
            check=False,
        )
        assert 0 == done.returncode, f"{done.stdout}\n{done.stderr}"
        return done


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources alone, without anything that was built."""
    place = tmp_path_factory.mktemp("source")
    leave_out = shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, place / name, ignore=leave_out)
        else:
            shutil.copy(ROOT / name, place / name)
    return place


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment of the Python that runs the tests."""
    return Environment(tmp_path_factory.mktemp("here") / "venv")


@pytest.fixture(scope="module")
def sdist(source: Path, environment: Environment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution."""
    place = tmp_path_factory.mktemp("sdist")
    build = f"import os, setuptools.build_meta as b; os.chdir({str(source)!r}); print(b.build_sdist({str(place)!r}))"
    environment.runs(build)
    (built,) = place.glob("*.tar.gz")
    return built


@pytest.fixture(scope="module")
def wheel(sdist: Path, environment: Environment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that pip makes of the source distribution, with the compiler of this machine if it has one."""
    place = tmp_path_factory.mktemp("wheel")
    environment.pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(place), str(sdist))
    (built,) = place.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def compiler() -> None:
    """There is a C compiler, and where merges are decided about there has to be one."""
    if shutil.which(os.environ.get("CC", "gcc")) is None:
        missing = "there is no C compiler"
        pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)


def works(python: str) -> bool:
    """Whether that Python is really there, and can make environments; a shim may stand in for one that is not."""
    path = shutil.which(python)
    if path is None:
        return False
    asked = [path, "-c", f"import ensurepip, sys; sys.exit('python%d.%d' % sys.version_info[:2] != {python!r})"]
    return subprocess.run(asked, capture_output=True, timeout=60, check=False).returncode == 0


def test_without_a_compiler_it_is_installed_all_the_same(source: Path, environment: Environment) -> None:
    """The kernel runs in Python then, and says so once, however many agents there are, and what to do about it."""
    environment.installs(source, CC="/bin/false")

    done = environment.runs(DECIDES)

    assert "pure" == done.stdout.strip()
    assert 1 == done.stderr.count(NOTICE)
    assert "WARNING" in done.stderr
    assert all(word in done.stderr for word in ("gcc", "python3-dev", "pip install", "RECONVERGE_NO_EXTENSIONS=1"))


def test_who_asked_for_python_is_not_told_that_it_is_python(source: Path, environment: Environment) -> None:
    """Nothing is said where nothing is amiss."""
    environment.installs(source, CC="/bin/false")

    done = environment.runs(DECIDES, RECONVERGE_NO_EXTENSIONS="1")

    assert ("pure", "") == (done.stdout.strip(), done.stderr)


@pytest.mark.usefixtures("compiler")
def test_a_source_distribution_has_all_that_is_compiled(sdist: Path, wheel: Path, environment: Environment) -> None:
    """Every file of C and every header; the wheel that pip makes of it to install it is compiled, without a word."""
    with tarfile.open(sdist) as archive:
        inside = {Path(name).name for name in archive.getnames() if "/kernel/native/" in name}
    assert {path.name for path in NATIVE.rglob("*.[ch]")} <= inside

    environment.installs(wheel, CC="/bin/false")
    done = environment.runs(DECIDES)

    assert ("native", "") == (done.stdout.strip(), done.stderr)


@pytest.mark.usefixtures("compiler")
def test_a_wheel_carries_the_compiled_kernel(wheel: Path, environment: Environment) -> None:
    """One that was built with a compiler works where there is none, and can be told to do without."""
    with zipfile.ZipFile(wheel) as archive:
        compiled = [name for name in archive.namelist() if name.startswith("reconverge/kernel/_native.")]
    environment.installs(wheel, CC="/bin/false")

    assert 1 == len(compiled)
    assert "native" == environment.runs(DECIDES).stdout.strip()
    assert "pure" == environment.runs(DECIDES, RECONVERGE_NO_EXTENSIONS="1").stdout.strip()


@pytest.mark.usefixtures("compiler")
def test_a_wheel_passes_the_quickstart_where_there_is_no_compiler(
    wheel: Path, environment: Environment, short_path: Path
) -> None:
    """The example of two nodes that share a limit runs from it, with a redis-server on the path and nothing else."""
    server = shutil.which("redis-server")
    assert server is not None
    (short_path / "redis-server").symlink_to(server)
    environment.installs(wheel, CC="/bin/false")

    done = environment.runs(
        f"{QUICKSTART}\nprint(one.stats().kernel)",
        PATH=str(short_path),
        PYTHONPATH=sysconfig.get_path("purelib"),  # for the packages of reconverge[redis]
        XDG_RUNTIME_DIR=str(short_path),
    )
    admitted, kernel = done.stdout.splitlines()

    assert "native" == kernel
    assert 90 <= int(admitted.removesuffix(" of 100.").rpartition("= ")[2]) <= 100


def test_a_wheel_and_a_source_distribution_carry_every_script(wheel: Path, sdist: Path) -> None:
    """Every `.lua` file of the hubs is in both, under its own path: an installed hub reads its scripts from there."""
    scripts = {str(path.relative_to(ROOT / "sync")) for path in (ROOT / "sync").rglob("*.lua")}
    with zipfile.ZipFile(wheel) as archive:
        in_wheel = set(archive.namelist())
    with tarfile.open(sdist) as archive:
        in_sdist = {name.partition("/sync/")[2] for name in archive.getnames()}

    assert "reconverge_sync/redis/lua/exchange.lua" in scripts
    assert scripts == {name for name in in_wheel if name.endswith(".lua")}
    assert scripts == {name for name in in_sdist if name.endswith(".lua")}


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("python", PYTHONS)
def test_it_is_compiled_for_every_python_that_is_found(python: str, sdist: Path, tmp_path: Path) -> None:
    """Those that are declared and installed here; both kernels decide there."""
    if python == RUNNING:
        pytest.skip("it is the one of the tests above")
    if not works(python):
        pytest.skip(f"there is no {python} here")
    environment = Environment(tmp_path / "venv", python)

    environment.installs(sdist)

    assert ("native", "") == ((done := environment.runs(DECIDES)).stdout.strip(), done.stderr)
    assert "pure" == environment.runs(DECIDES, RECONVERGE_NO_EXTENSIONS="1").stdout.strip()
