"""The fixtures of every test."""

from __future__ import annotations

import gc
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

from reconverge import Agent
from reconverge.kernel import COMPILED, IMPLEMENTATION
from reconverge.kernel.engine import PYTHON_IS_ASKED_FOR
from reconverge.runtime import process
from tests.support.effort import tried
from tests.support.servers import RedisServer
from tests.support.threads import running_threads
from tests.support.waiting import eventually

settings.register_profile(
    "default",
    deadline=None,
    max_examples=tried(30, long=100),
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("planting", settings.get_profile("default"), phases=[Phase.generate], database=None)
settings.register_profile(
    "fast",
    settings.get_profile("default"),
    max_examples=20,
    derandomize=True,
    # With so few examples, a handful that are left out would count as too many.
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
settings.load_profile("planting" if os.environ.get("PLANT") else "fast" if os.environ.get("FAST") else "default")


pytest_plugins = ("reconverge.testing.fixtures", "tests.support.fixtures.agents", "tests.support.fixtures.servers")

CRASHED = pytest.StashKey[bool]()
SHAKY = "shaky"
"""The name under which pytest's cache keeps which tests failed beside others and passed alone."""

LONGEST = (
    "mqtt/test_mqtt.py",
    "usage/test_month.py",
    "simulation/test_fuzz.py",
    "project/test_bench.py",
    "project/test_site.py",
    "project/test_quickstart.py",
    "project/test_examples.py",
    "project/test_building.py",
    "agent/processes/test_asking_processes.py",
    "cli/replay/test_replay.py",
    "integrations/web/test_spellings.py",
    "integrations/frameworks/test_servers.py",
    "kernel/table/test_interrupted_decisions.py",
    "chaos/test_chaos.py",
    "integrations/console/test_browser.py",
    "mqtt/test_mqtt_processes.py",
    "protocol/test_several.py",
    "redis/sentinel/test_sentinel.py",
    "redis/cluster/test_cluster.py",
    "redis/test_redis.py",
    "protocol/test_twins.py",
    "protocol/test_protocol.py",
    "simulation/test_asking.py",
    "simulation/test_regions.py",
    "simulation/test_several.py",
    "redis/test_data_loss.py",
)
"""Files of tests that take most of a minute, on end; the longest first."""
EASILY_DISTURBED = ("chaos/test_asks.py", "chaos/test_hostile.py")
"""Files whose claims are about seconds: other processes must not take all of the processors meanwhile."""
SECOND_HALF = "limit"
"""The rooms from this one on come last, and what is easily disturbed before them, when the longest files are over."""
TESTS = Path(__file__).parent


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep what is collected out of the way of garbage collections.

    Sixteen thousand tests are 600,000 objects that stay until the end: a collection goes through them in 0.4 s of
    processor time, and while there are more and more of them, one follows the other.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where several processes share the work, what takes longest begins first, so that none is left alone at last."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: _turn(item.path.relative_to(TESTS).as_posix()))


def _turn(file: str) -> int:
    """Returns the place of a file: that in the list, or after all of it."""
    if file in LONGEST:
        return LONGEST.index(file)
    if file in EASILY_DISTURBED:
        return len(LONGEST) + 1
    return len(LONGEST) + (0 if file < SECOND_HALF else 2)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Remember that a process of pytest-xdist has crashed: nothing says then which tests have not been run."""
    if error:
        node.config.stash[CRASHED] = True


def pytest_sessionfinish(session: pytest.Session) -> None:
    """End with another status than failed tests do, so that to run those once more does not count as success."""
    if CRASHED in session.config.stash:
        session.exitstatus = pytest.ExitCode.INTERNAL_ERROR


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Name what failed beside others and passes alone: a test that is shaky is seen although it counts as passed.

    `.ci/run` reads the names in the cache and says them once more when all else is over.
    """
    if config.getoption("lf", default=False) and config.cache is not None:
        passed: list[pytest.TestReport] = terminalreporter.stats.get("passed", [])
        names = [report.nodeid for report in passed]
        config.cache.set(SHAKY, names)
        for name in names:
            terminalreporter.write_line(f"Shaky: {name} failed before, and passes alone.")


def pytest_configure() -> None:
    """Lets programs that tests start react to Ctrl-C, also where the tests themselves are told to ignore it.

    `nohup make test &` in a script ignores SIGINT, and every program that is started inherits that.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_header() -> str:
    """Say which of the twin kernels is under test."""
    return f"reconverge kernel: {IMPLEMENTATION}"


@pytest.fixture(scope="session")
def compiled_kernel() -> None:
    """The compiled kernel is under test; where merges are decided about, its absence is a failure."""
    if PYTHON_IS_ASKED_FOR:
        pytest.skip("RECONVERGE_NO_EXTENSIONS asks for the kernel in Python")
    if not COMPILED:
        missing = "the compiled kernel is not there; install the project again where there is a C compiler"
        pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)


@pytest.fixture(scope="session")
def shared_redis() -> Iterator[RedisServer]:
    """One Redis for all tests that leave it as they found it."""
    with RedisServer() as server:
        yield server


@pytest.fixture
def redis_server(shared_redis: RedisServer) -> RedisServer:
    """An empty Redis that must not be harmed."""
    shared_redis.command("FLUSHALL")
    return shared_redis


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    """A Redis of this test's own, to kill, pause and configure."""
    with RedisServer() as server:
        yield server


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A directory for servers that listen on unix sockets, whose paths must not be long, as `tmp_path` may be."""
    with tempfile.TemporaryDirectory(prefix="reconverge-test-", ignore_cleanup_errors=True) as place:
        yield Path(place)


@pytest.fixture(autouse=True)
def _agents_end_with_their_test() -> Iterator[None]:
    """Whoever is still exchanging is stopped: the next test may fork or count threads, and be in any other file."""
    before = running_threads()
    yield
    left = [thread for thread in running_threads() if thread not in before]
    if left:
        for agent in list(process._agents):
            if isinstance(agent, Agent) and not set(left).isdisjoint(agent._lifecycle.alive):
                agent.stop(timeout=0.0)
        eventually(lambda: not any(thread.alive for thread in left), f"the end of {left}")
