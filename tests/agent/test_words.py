"""Goal: a wrong input ends in a sentence of the package: the fact, the value, the remedy. None ends in a traceback.

Method: a table of wrong inputs, each with the words that its message must have; and the inputs that are taken for what
they say, such as a `timedelta`.
"""

from __future__ import annotations

import inspect
import logging
import math
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast

import pytest

from reconverge import Agent, InvalidKey, InvalidLimit, InvalidSetting, Limit, UnknownHub, UnknownLimit
from reconverge.arguments import with_advice
from reconverge.clock import ManualClock
from reconverge.hooks import SilentHooks
from reconverge.hub.registry import HubSettings, open_hub
from reconverge.limiter import RateLimiter
from tests.support.servers import RedisServer

MINUTE = timedelta(minutes=1)


def wrong(value: object) -> Any:
    return cast("Any", value)


AGENT: Any = Agent


def login(limit: Any = "5/minute", **settings: Any) -> RateLimiter:
    """A limit of an agent of its own."""
    return Agent("memory://").limit("login", limit, **settings)


WRONG: dict[str, tuple[Callable[[], object], type[Exception], tuple[str, ...]]] = {
    "a parent by name": (
        lambda: login(parent="api"),
        InvalidSetting,
        ("parent='api'", "is no RateLimiter", "agent.limit"),
    ),
    "a misspelt setting of an agent": (
        lambda: AGENT("memory://", sync_intervall=1),
        InvalidSetting,
        ("sync_intervall=1", "no such setting of Agent", "did you mean 'sync_interval'?"),
    ),
    "a setting that is like none": (
        lambda: AGENT("memory://", zzz=1),
        InvalidSetting,
        ("zzz=1", "known: hub, namespace, sync_interval"),
    ),
    "a word for doubt that is none": (
        lambda: AGENT("memory://", in_doubt="later"),
        InvalidSetting,
        ("in_doubt='later'", "neither 'refuse' nor a time", "'ask:25ms'"),
    ),
    "a misspelt secret is not shown": (
        lambda: AGENT("memory://", settings_secrte="hunter2"),
        InvalidSetting,
        ("settings_secrte='***'", "did you mean 'settings_secret'?"),
    ),
    "a password in a misspelt hub is not shown": (
        lambda: AGENT(hubb="redis://:hunter2@host"),
        InvalidSetting,
        ("hubb='***'", "did you mean 'hub'?"),
    ),
    "a namespace without a name": (
        lambda: AGENT("memory://", "shop"),
        InvalidSetting,
        ("namespace='shop'", "without a name", "settings by name after it"),
    ),
    "a hub twice": (lambda: AGENT("memory://", hub="memory://"), InvalidSetting, ("hub='memory://'", "twice")),
    "a burst beside a limit string": (
        lambda: login(burst=10),
        InvalidSetting,
        ("burst=10", "of the limit itself", "Limit(quota, window, algorithm='token-bucket', burst=...)"),
    ),
    "a key function of an agent's limit": (
        lambda: login(key_func=len),
        InvalidSetting,
        ("key_func=", "web framework", "limiter.allow('ada')"),
    ),
    "a limit without its quota": (
        lambda: wrong(Agent("memory://")).limit("login"),
        InvalidSetting,
        ("limit=None", "is missing", "agent.limit('login', '100/minute')"),
    ),
    "a misspelt setting of a limit": (
        lambda: wrong(Limit)(5, 60, algoritm="gcra"),
        InvalidSetting,
        ("algoritm='gcra'", "no such setting of Limit", "did you mean 'algorithm'?"),
    ),
    "a secret that is a number": (
        lambda: AGENT("memory://", settings_secret=5),
        InvalidSetting,
        ("settings_secret='***'", "neither text nor bytes, but int", "openssl rand"),
    ),
    "a fallback that is no URL": (
        lambda: Agent("redis://127.0.0.1", fallback="nonsense"),
        InvalidSetting,
        ("fallback='nonsense'", "is not a URL like"),
    ),
    "hooks that are a class": (
        lambda: wrong(Agent("memory://")).add_hooks(SilentHooks),
        InvalidSetting,
        ("SilentHooks", "is a class", "add_hooks(SilentHooks())"),
    ),
    "a clock that is none": (lambda: Agent("memory://", clock=wrong(5)), InvalidSetting, ("clock=5", "wall_ns()")),
    "a truth in words": (lambda: Agent("memory://", sigterm=wrong("no")), InvalidSetting, ("sigterm='no'", "False")),
    "a share that is a percentage": (lambda: login(soft=10), InvalidLimit, ("soft 10", "0.1, or '10%'", "10 % more")),
    "a percentage above all": (lambda: login(soft="1000%"), InvalidLimit, ("soft 10.0", "from 0 to 1")),
    "a share of less than one": (lambda: login(soft=0.1), InvalidSetting, ("soft=0.1", "no effect", "at least 0.2")),
    "one key where many are wanted": (
        lambda: login().allow_many(wrong("ada")),
        InvalidKey,
        ("not the single key 'ada'", "write ['ada']"),
    ),
    "one key to warm": (lambda: login().warm("ada"), InvalidKey, ("not the single key 'ada'", "write ['ada']")),
    "bytes where keys are wanted": (
        lambda: login().allow_many(wrong(b"ada")),
        InvalidKey,
        ("not the single key b'ada'",),
    ),
    "None as a key": (lambda: login().allow(wrong(None)), InvalidKey, ("not None", "name what is counted")),
    "one of several that is a number": (lambda: login(["5/minute", 9]), InvalidLimit, ("9", "not int", "Limit obj")),
    "no limit at all": (lambda: login([]), InvalidLimit, ("1 to 16 quotas",)),
    "a misspelt unit": (
        lambda: login("5/minuet"),
        InvalidLimit,
        ("'5/minuet', at character 3: unknown unit", "did you mean 'minute'?"),
    ),
    "a misspelt policy": (lambda: login(policy="strikt"), InvalidSetting, ("'strikt'", "did you mean 'strict'?")),
    "a misspelt algorithm": (
        lambda: login(algorithm="token_bucket"),
        InvalidLimit,
        ("'token_bucket'", "did you mean 'token-bucket'?"),
    ),
    "a misspelt scheme": (lambda: Agent("rediss+clutser://a"), UnknownHub, ("did you mean 'rediss+cluster'?",)),
    "a scheme in capitals": (lambda: Agent("REDIS://a"), InvalidSetting, ("REDIS://a", "write redis://")),
    "a misspelt limit": (lambda: _limiter_of("logim"), UnknownLimit, ("declared: login", "did you mean 'login'?")),
    "a socket on a host": (
        lambda: Agent("redis+unix://run/r.sock"),
        InvalidSetting,
        ("redis+unix://run/r.sock", "names a host", "the whole path"),
    ),
    "a window of a negative time": (lambda: Limit(5, timedelta(-1)), InvalidLimit, ("window of -86400.0 s",)),
    "an interval of no time": (lambda: Agent("memory://", sync_interval=timedelta(0)), InvalidSetting, ("=0.0:",)),
    "a negative timeout": (
        lambda: login().wait_blocking("ada", timeout=timedelta(-1)),
        InvalidSetting,
        ("timeout=-86400.0", "0 or more"),
    ),
}


def _limiter_of(name: str) -> RateLimiter:
    agent = Agent("memory://")
    agent.limit("login", "5/minute")
    return agent.limiter(name)


@pytest.mark.parametrize("mistake", WRONG)
def test_a_wrong_input_is_told_with_its_fact_its_value_and_its_remedy(mistake: str) -> None:
    """By an error of the package, at the moment when it is made."""
    make_it, error, words = WRONG[mistake]

    with pytest.raises(error) as caught:
        make_it()

    assert error is type(caught.value)
    assert [] == [word for word in words if word not in str(caught.value)]


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
    assert 60_000_000_000 == agent._kernel.lease_ns
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
