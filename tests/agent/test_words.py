"""Goal: wrong arguments, variables and settings without effect are reported; an input with one meaning is accepted.

Method: each by itself, through the public API; wrong inputs that are an error at once are in `test_mistakes.py`.
"""

from __future__ import annotations

import inspect
import logging
import math
import subprocess
import sys
from datetime import timedelta
from typing import Any, cast

import pytest

from reconverge import Agent, InvalidSetting, Limit
from reconverge.agent.notice import LIMITS_MANY
from reconverge.arguments import with_advice
from reconverge.clock import ManualClock
from reconverge.hub.registry import HubSettings, open_hub
from reconverge.limiter import RateLimiter
from tests.support.servers import RedisServer

MINUTE = timedelta(minutes=1)


def wrong(value: object) -> Any:
    return cast("Any", value)


def login(limit: Any = "5/minute", **settings: Any) -> RateLimiter:
    """A limit of an agent of its own."""
    return Agent("memory://").limit("login", limit, **settings)


@pytest.mark.parametrize("callable_", [Agent, Agent.limit, Limit], ids=["Agent", "limit", "Limit"])
def test_the_signature_of_what_tells_of_wrong_arguments_is_its_own(callable_: Any) -> None:
    """Editors and documentation read it."""
    names = list(inspect.signature(callable_).parameters)

    assert "args" not in names
    assert len(names) > 10


def test_an_error_of_types_within_a_call_stays_what_it_is() -> None:
    """Such an error is no matter of arguments."""

    @with_advice()
    def wrong_within(number: int) -> int:
        return number + cast("int", wrong("one"))

    with pytest.raises(TypeError, match="unsupported operand"):
        wrong_within(1)


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("RECONVERGE_HUB", "", "RECONVERGE_HUB='': is empty; name a hub"),
        ("RECONVERGE_HUB", "localhost", "RECONVERGE_HUB='localhost': is not a URL like"),
        ("RECONVERGE_SETTINGS_SECRET", "short", r"RECONVERGE_SETTINGS_SECRET='\*\*\*': is shorter than 16 bytes"),
    ],
)
def test_a_wrong_value_of_the_environment_is_told_with_its_variable(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, words: str
) -> None:
    """The program says nothing of it, so the name of the setting would lead nowhere."""
    monkeypatch.setenv(variable, value)

    with pytest.raises(InvalidSetting, match=words):
        Agent()


def test_the_package_runs_as_the_command() -> None:
    """`python -m reconverge` is what stands for it where the command is not on the path."""
    done = subprocess.run(  # our own interpreter
        [sys.executable, "-m", "reconverge", "--help"], capture_output=True, text=True, check=False
    )

    assert (0, "") == (done.returncode, done.stderr)
    assert "doctor" in done.stdout


@pytest.mark.parametrize("arguments", [(), ("ada", 1, None, 1)], ids=["none", "four"])
@pytest.mark.parametrize("name", ["allow", "hit"])
def test_a_call_with_wrong_arguments_names_the_function(name: str, arguments: tuple[Any, ...]) -> None:
    """In both kernels; of four arguments one is too many."""
    with pytest.raises(TypeError, match=rf"\b{name}\("):
        getattr(login(), name)(*arguments)


def test_an_argument_with_an_unknown_name_is_told_with_the_function() -> None:
    """`costs` is a setting of the limit, and `cost` is what a request costs."""
    with pytest.raises(TypeError, match=r"allow\(.*'costs'"):
        login().allow("ada", **wrong({"costs": 1}))


def test_several_quotas_may_be_strings_limits_or_both() -> None:
    """Each is the quota that it would be alone, as in a rule."""
    assert ["5/60s", "9/3600s"] == [
        str(each).split(" ")[0] for each in login(["5 per minute", "9/hour"]).quotas.values()
    ]
    assert ["login", "login#daily"] == list(login([Limit(5, 60), "9/day as daily"]).quotas)
    assert 3 == len(login(["5/second; 8/minute", "9/hour"]).quotas)


def test_a_share_that_adds_to_one_of_several_quotas_is_taken() -> None:
    """It has an effect, though not on the smaller one."""
    assert [5, 110] == [each.capacity for each in login("5/second; 100/hour", soft=0.1).quotas.values()]


def test_an_overshoot_up_to_the_whole_limit_or_without_end_is_taken() -> None:
    """1 is 100 %, and infinity is `available`."""
    assert ("balanced", 1.0) == (
        login(max_overshoot=1).control.policy.name,
        login(max_overshoot=1).control.policy.max_overshoot,
    )
    assert "available" == login(max_overshoot=math.inf).control.policy.name


def test_a_timedelta_is_taken_wherever_seconds_are(redis_server: RedisServer) -> None:
    """Windows, warm-ups, intervals, leases and timeouts mean the same in both forms."""
    agent = Agent(
        redis_server.url,
        sync_interval=timedelta(milliseconds=200),
        min_sync_interval=timedelta(milliseconds=50),
        max_silence=timedelta(seconds=4),
        lease_ttl=MINUTE,
        exchange_timeout=timedelta(seconds=2),
        stop_timeout=timedelta(seconds=3),
    )
    limiter = agent.limit("login", Limit(5, MINUTE), sync_interval=timedelta(milliseconds=400))
    agent.change_pace(timedelta(milliseconds=300))

    assert Limit(5, 60.0) == limiter.limit == Limit(5, MINUTE)
    assert Limit(5, 60, "smooth-warming-up", warmup=10) == Limit(5, MINUTE, "smooth-warming-up", warmup=MINUTE / 6)
    assert 400_000_000 == limiter.control.table.interval_ns
    assert 300_000_000 == agent._kernel.interval_ns
    assert (60_000_000_000, 4_000_000_000) == (agent._kernel.lease_ns, agent._kernel.silence_max_ns)
    assert (2.0, 3.0) == (agent._settings.exchange_timeout, agent._settings.stop_timeout)
    agent.stop(timedelta(seconds=1))


async def _waits(limiter: RateLimiter) -> bool:
    return (await limiter.wait("ada", timeout=timedelta(0))).allowed


def test_who_waits_may_say_how_long_as_a_timedelta() -> None:
    """A timeout of no time is a question that does not wait, in both ways of waiting."""
    import asyncio  # noqa: PLC0415  # for this alone

    limiter = Agent("memory://", clock=ManualClock()).limit("login", "1/minute")

    assert limiter.wait_blocking("ada", timeout=MINUTE).allowed
    assert not limiter.wait_blocking("ada", timeout=timedelta(0)).allowed
    assert not asyncio.run(_waits(limiter))


def test_an_interval_too_long_for_a_window_is_told(redis_server: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    """With the interval that would do; one that leaves ten exchanges to a window says nothing."""
    agent = Agent(redis_server.url, sync_interval=10)
    agent.limit("short", "10/minute")
    agent.limit("long", "10/hour")
    agent.limit("often", "10/minute", sync_interval=6)
    agent.limit("short", "10/minute")

    (record,) = [each for each in caplog.records if each.levelno >= logging.WARNING]
    said = record.getMessage()
    assert all(word in said for word in ("'short'", "60 s", "every 10 s", "every 6 s or more often"))


def test_an_interval_that_becomes_too_long_is_told(redis_server: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    """A live setting may change it; told once, and once more when it has been short enough in between."""
    agent = Agent(redis_server.url)
    agent.limit("login", "10/minute")
    before = list(caplog.records)
    told = []
    for interval_s in (10, 10, 7, 1, 10):
        agent.change_pace(interval_s)
        told.append(len([each for each in caplog.records if "'login' has a window" in each.getMessage()]))
    agent.stop()

    assert [] == before
    assert [1, 1, 1, 1, 2] == told


def test_a_limits_own_interval_that_becomes_too_long_is_told(
    redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Of that limit alone."""
    agent = Agent(redis_server.url)
    agent.limit("login", "10/minute")
    agent.limit("api", "10/minute")
    agent.change_pace(10, limit="api")
    agent.stop()

    assert ["'api'"] == [each.getMessage().split()[3] for each in caplog.records if each.levelno >= logging.WARNING]


def test_soft_without_effect_on_one_of_several_quotas_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Once, with what it takes; a quota alone with such a soft is an error."""
    agent = Agent("memory://")
    for _ in range(2):
        agent.limit("api", "5/second; 1000/hour", soft="5%")
    agent.limit("others", "20/second; 1000/hour", soft="5%")

    (record,) = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert (
        "soft=0.05 adds less than one request to the 5 of the quota 'api', so it has no effect there; give soft=0.2"
        in (record.getMessage())
    )


def test_a_limit_for_each_user_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """A key would do, and costs no memory at the hub. Declaring a limit again makes no further one."""
    agent = Agent("memory://")
    for number in range(LIMITS_MANY - 1):
        agent.limit(f"user-{number}", "5/minute")
    agent.limit("user-1", "5/minute")
    before = caplog.text
    for number in range(LIMITS_MANY + 1):
        agent.limit(f"user-{number}", "5/minute")

    assert "" == before
    assert 1 == len(caplog.records)
    assert f"has 2000 limits, the last of which is 'user-{LIMITS_MANY - 1}'" in caplog.text
    assert "write limiter.allow(user)" in caplog.text


def test_a_node_that_counts_alone_hears_nothing_of_intervals(caplog: pytest.LogCaptureFixture) -> None:
    """It exchanges nothing, so none is too long."""
    Agent("memory://", sync_interval=100).limit("login", "10/minute")

    assert [] == caplog.records


def test_the_environment_switches_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless the program says how: `RECONVERGE_SWITCH` is the default of `switch`."""
    monkeypatch.setenv("RECONVERGE_SWITCH", "off")
    off = Agent("memory://").limit("login", "1/minute")
    on = Agent("memory://", switch="on").limit("login", "1/minute")

    assert [True, True] == [off.allow("ada") for _ in range(2)]
    assert [True, False] == [on.allow("ada") for _ in range(2)]


@pytest.mark.parametrize("said", ["of", "OFF", "0"])
def test_a_switch_of_the_environment_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    """An emergency switch that is misspelt must not pass for one that is turned."""
    monkeypatch.setenv("RECONVERGE_SWITCH", said)
    with pytest.raises(InvalidSetting, match=f"RECONVERGE_SWITCH='{said}': must be 'on', 'shadow', 'off'"):
        Agent("memory://")


def test_a_missing_module_is_told_by_the_name_of_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """`redis.asyncio` is in the package redis; a clone is installed in another way than a package of an index."""
    from importlib.metadata import EntryPoint  # noqa: PLC0415  # likewise

    from reconverge import MissingExtra  # noqa: PLC0415  # for this alone

    def missing(_entry: EntryPoint) -> object:
        raise ModuleNotFoundError("No module named 'redis.asyncio'", name="redis.asyncio")

    monkeypatch.setattr(EntryPoint, "load", missing)
    with pytest.raises(MissingExtra) as caught:
        open_hub("redis://localhost", HubSettings("shop", 1.0))

    assert "needs the package 'redis'; install it with: pip install 'reconverge[redis]'" in str(caught.value)
    assert "in a clone of reconverge, as long as it is not on PyPI: pip install '.[redis]'" in str(caught.value)
