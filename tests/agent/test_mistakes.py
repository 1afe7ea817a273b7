"""Goal: whatever a user gets wrong is told at once, in a sentence with the fact, the value and the remedy.

Method: one table of mistakes, each made through the public API, with the words that its message must have; every error
that the package declares is in it.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast

import pytest

import reconverge
from reconverge import (
    Agent,
    CostExceedsQuota,
    EventletPatched,
    HubUnavailable,
    InvalidCost,
    InvalidKey,
    InvalidLimit,
    InvalidSetting,
    LeaseEnded,
    Limit,
    LimitConflict,
    MissingExtra,
    NeedsSlot,
    ReconvergeError,
    Slot,
    UnknownHub,
    UnknownKind,
    UnknownLimit,
    WrongMoment,
    errors,
)
from reconverge.contracts.contracts import Contracts
from reconverge.hooks import SilentHooks
from reconverge_sync.memory import MemoryHub
from tests.support.agents import net_at
from tests.support.programs.process import Process
from tests.support.servers import free_port

Mistake = tuple[Callable[[], object], type[ReconvergeError], tuple[str, ...]]


def _login(limit: Any = "5/minute", **settings: Any) -> reconverge.RateLimiter:
    """A limit of an agent of its own."""
    return Agent("memory://").limit("login", limit, **settings)


def _declared_twice(first: str, second: str, **settings: Any) -> None:
    agent = Agent("memory://")
    agent.limit("login", first)
    agent.limit("login", second, **settings)


def _wrong(value: object) -> Any:
    return cast("Any", value)


IN_PROGRESS: dict[str, Any] = {"plans": {"free": {"limits": {"jobs": "2 in flight"}}}, "unknown": "free"}

LIMITS: dict[str, Mistake] = {
    "no number": (lambda: _login("many/minute"), InvalidLimit, ("'many/minute'", "number of requests", "character 1")),
    "no unit": (lambda: _login("5/"), InvalidLimit, ("'5/'", "second, minute, hour", "the text ends")),
    "unknown unit": (lambda: _login("5/fortnight"), InvalidLimit, ("'fortnight'", "use ms, s, m, h, d", "character 3")),
    "zero window": (lambda: _login("5/0 minutes"), InvalidLimit, ("length 0",)),
    "too short a window": (lambda: Limit(5, 0.0001), InvalidLimit, ("0.0001 s", "between 1 ms and ten years")),
    "too much": (lambda: _login("5/minute and more"), InvalidLimit, ("'burst', 'warmup', 'as'", "'and'")),
    "several quotas where one is read": (
        lambda: Limit.parse("5/minute, 9/hour"),
        InvalidLimit,
        ("Limit.parse_all", "agent.limit", "character 11"),
    ),
    "two quotas of one name": (
        lambda: _login("5/minute as a, 9/hour as a"),
        InvalidLimit,
        ("'login' has two quotas named 'login#a'", "rename one"),
    ),
    "a share of nobody": (
        lambda: _login("5/minute; 9/hour", parent=_login()),
        InvalidSetting,
        ("parent='login'", "one quota and no parent"),
    ),
    "burst of a window": (lambda: Limit(5, 60.0, burst=9), InvalidLimit, ("token-bucket, gcra", "sliding-window")),
    "unknown algorithm": (lambda: Limit(5, 60.0, "guess"), InvalidLimit, ("'guess'", "fixed-window")),
    "too long a log": (lambda: Limit(10**6, 60.0, "sliding-log"), InvalidLimit, ("1000000", "sliding-slices")),
    "slices of something else": (lambda: Limit(5, 60.0, slices=6), InvalidLimit, ("sliding-slices", "sliding-window")),
    "a limit of another type": (lambda: _login(_wrong(100)), InvalidLimit, ("a string like '100/minute'", "int")),
    "half a quota": (lambda: Limit(_wrong(2.5), 60.0), InvalidLimit, ("2.5", "whole number")),
    "a name with blanks": (
        lambda: Agent("memory://").limit("log in", "5/minute"),
        InvalidLimit,
        ("'log in'", "letters, digits and _-./", "character 4"),
    ),
    "no name": (lambda: Agent("memory://").limit("", "5/minute"), InvalidLimit, ("1 to 64 characters", "not 0")),
    "another limit of that name": (
        lambda: _declared_twice("5/minute", "6/minute"),
        LimitConflict,
        ("'login'", "5/60s", "6/60s", "use another name"),
    ),
    "another policy of that name": (
        lambda: _declared_twice("5/minute", "5/minute", policy="strict"),
        LimitConflict,
        ("'login'", "balanced", "strict", "use another name"),
    ),
    "what is in progress as a rate": (
        lambda: Agent("memory://").limit("render", "20 in flight"),
        InvalidLimit,
        ("20 in flight", "declare it with agent.concurrency('render'"),
    ),
    "a rate as what is in progress": (
        lambda: Agent("memory://").concurrency("login", "5/minute"),
        InvalidLimit,
        ("not a limit on work in progress", "declare a rate with agent.limit"),
    ),
    "a setting of rates for slots": (
        lambda: _wrong(Agent("memory://")).concurrency("render", 20, soft="10%"),
        InvalidSetting,
        ("soft='10%'", "is a setting of limits on a rate"),
    ),
    "a limiter of the other kind": (
        lambda: _agent_with("login").limiter("login", reconverge.SlotLimiter),
        InvalidSetting,
        ("'login'", "limits a rate, and has no slots", "expected a SlotLimiter, as agent.concurrency returns"),
    ),
    "no limit at all": (lambda: Agent("memory://").limiter("login"), UnknownLimit, ("none yet", "agent.limit(")),
}

REQUESTS: dict[str, Mistake] = {
    "a slot that nothing would give back": (
        lambda: Contracts(Agent("memory://"), IN_PROGRESS).hit("ada"),
        NeedsSlot,
        ("hit()", "'jobs'", "Rule(limits=contracts)"),
    ),
    "a number as key": (lambda: _login().allow(_wrong(42)), InvalidKey, ("a key is a string", "int", "42")),
    "bytes as key": (lambda: _login().allow(_wrong(b"ada")), InvalidKey, ("a key is a string", "bytes", "b'ada'")),
    "a list as key": (lambda: _login().allow(_wrong(["ada"])), InvalidKey, ("a key is a string", "list", "'ada'")),
    "no key": (lambda: _login().hit(""), InvalidKey, ("at least one character", "''")),
    "a key that begins with NUL": (lambda: _login().hit("\x00ada"), InvalidKey, ("not start with NUL", "x00ada")),
    "half a character": (lambda: _login().hit("\ud800"), InvalidKey, ("lone surrogate", "ud800")),
    "too long a key": (
        lambda: Agent("memory://", key_bytes_max=8).limit("login", "5/minute").allow("123456789"),
        InvalidKey,
        ("123456789", "9 bytes, more than 8", "raise key_bytes_max"),
    ),
    "a negative cost": (lambda: _login().allow("ada", -1), InvalidCost, ("-1", "whole number of zero or more")),
    "half a cost": (lambda: _login().hit("ada", _wrong(0.5)), InvalidCost, ("0.5", "float", "whole number")),
    "a truth as cost": (lambda: _login().test("ada", _wrong(True)), InvalidCost, ("True", "bool", "whole number")),
    "too large a cost": (
        lambda: _login().allow("ada", 6),
        CostExceedsQuota,
        ("'login'", "at most 5", "cost of 6", "raise the quota"),
    ),
    "too large an estimate": (lambda: _login().reserve("ada", 6), CostExceedsQuota, ("at most 5", "cost of 6")),
    "a kind where none has a cost": (
        lambda: _login().allow("ada", kind="GET"),
        UnknownKind,
        ("'login' knows no kind 'GET'", "declare it with costs="),
    ),
    "an end that nobody foresaw": (
        lambda: _login().reserve("ada", 1, on_abandon=_wrong("burn")),
        InvalidSetting,
        ("on_abandon='burn'", "'keep' or 'return'"),
    ),
    "a negative refund": (lambda: _login().refund("ada", -1), InvalidCost, ("-1", "zero or more")),
    "a negative truth": (lambda: _login().reserve("ada", 1).settle(-1), InvalidCost, ("-1", "zero or more")),
}

SETTINGS: dict[str, Mistake] = {
    "no URL": (
        lambda: Agent("localhost:6379"),
        InvalidSetting,
        ("hub=", "'localhost:6379'", "redis://localhost:6379/0"),
    ),
    "no hub": (lambda: Agent(_wrong(42)), InvalidSetting, ("hub=42", "neither a URL nor a Hub")),
    "a port out of range": (lambda: Agent("redis://localhost:66666"), InvalidSetting, ("hub=", "66666", "65535")),
    "an option unknown": (lambda: Agent("redis://localhost?colour=1"), InvalidSetting, ("hub=", "colour", "not known")),
    "a scheme unknown": (lambda: Agent("postgres://localhost"), UnknownHub, ("'postgres'", "redis://", "memory://")),
    "a policy against its number": (
        lambda: Agent("memory://", policy="strict", max_overshoot=0.1),
        InvalidSetting,
        ("max_overshoot=0.1", "'strict'", "leave one of the two out"),
    ),
    "a negative overshoot": (lambda: Agent("memory://", max_overshoot=-0.1), InvalidSetting, ("-0.1", "0 or more")),
    "too small an overshoot": (lambda: Agent("memory://", max_overshoot=1e-4), InvalidSetting, ("0.0001", "0.001")),
    "a cold allowance in strict": (
        lambda: Agent("memory://", policy="strict", cold_allowance=0.5),
        InvalidSetting,
        ("cold_allowance=0.5", "must be 0 in strict"),
    ),
    "a cold allowance above all": (
        lambda: Agent("memory://", cold_allowance=1.5),
        InvalidSetting,
        ("cold_allowance=1.5", "from 0 to 1"),
    ),
    "two algorithms": (
        lambda: Agent("memory://").limit("login", Limit(5, 60.0), algorithm="gcra"),
        InvalidSetting,
        ("algorithm='gcra'", "'sliding-window'"),
    ),
    "a namespace with braces": (
        lambda: Agent("memory://", namespace="{shop}"),
        InvalidSetting,
        ("namespace='{shop}'", "letters, digits and _-.:"),
    ),
    "a region without a hub": (
        lambda: Agent("memory://", region_share=0.5),
        InvalidSetting,
        ("region_share=0.5", "needs a hub", "name one"),
    ),
    "a region without a hub, and nearly all of it": (
        lambda: Agent("memory://", region_share=0.9999999),
        InvalidSetting,
        ("region_share=0.9999999", "needs a hub", "name one"),
    ),
    "too long a namespace": (lambda: Agent("memory://", namespace="x" * 65), InvalidSetting, ("1 to 64 characters",)),
}

SPELLINGS: dict[str, Mistake] = {
    "a parent by name": (
        lambda: _login(parent="api"),
        InvalidSetting,
        ("parent='api'", "is no RateLimiter", "agent.limit"),
    ),
    "a misspelt setting of an agent": (
        lambda: _wrong(Agent)("memory://", sync_intervall=1),
        InvalidSetting,
        ("sync_intervall=1", "no such setting of Agent", "did you mean 'sync_interval'?"),
    ),
    "a setting that is like none": (
        lambda: _wrong(Agent)("memory://", zzz=1),
        InvalidSetting,
        ("zzz=1", "known: hub, namespace, sync_interval"),
    ),
    "a word for doubt that is none": (
        lambda: _wrong(Agent)("memory://", in_doubt="later"),
        InvalidSetting,
        ("in_doubt='later'", "neither 'refuse' nor a time", "'ask:25ms'"),
    ),
    "a misspelt secret is not shown": (
        lambda: _wrong(Agent)("memory://", settings_secrte="hunter2"),
        InvalidSetting,
        ("settings_secrte='***'", "did you mean 'settings_secret'?"),
    ),
    "a password in a misspelt hub is not shown": (
        lambda: _wrong(Agent)(hubb="redis://:hunter2@host"),
        InvalidSetting,
        ("hubb='***'", "did you mean 'hub'?"),
    ),
    "a namespace without a name": (
        lambda: _wrong(Agent)("memory://", "shop"),
        InvalidSetting,
        ("namespace='shop'", "without a name", "each other setting as name=value"),
    ),
    "a hub twice": (lambda: _wrong(Agent)("memory://", hub="memory://"), InvalidSetting, ("hub='memory://'", "twice")),
    "a burst beside a limit string": (
        lambda: _login(burst=10),
        InvalidSetting,
        ("burst=10", "of the limit itself", "Limit(quota, window, algorithm='token-bucket', burst=...)"),
    ),
    "a key function of an agent's limit": (
        lambda: _login(key_func=len),
        InvalidSetting,
        ("key_func=", "web framework", "limiter.allow('ada')"),
    ),
    "a limit without its quota": (
        lambda: _wrong(Agent("memory://")).limit("login"),
        InvalidSetting,
        ("limit=None", "is missing", "agent.limit('login', '100/minute')"),
    ),
    "a misspelt setting of a limit": (
        lambda: _wrong(Limit)(5, 60, algoritm="gcra"),
        InvalidSetting,
        ("algoritm='gcra'", "no such setting of Limit", "did you mean 'algorithm'?"),
    ),
    "a secret that is a number": (
        lambda: _wrong(Agent)("memory://", settings_secret=5),
        InvalidSetting,
        ("settings_secret='***'", "neither text nor bytes, but int", "openssl rand"),
    ),
    "a fallback that is no URL": (
        lambda: Agent("redis://127.0.0.1", fallback="nonsense"),
        InvalidSetting,
        ("fallback='nonsense'", "is not a URL like"),
    ),
    "hooks that are a class": (
        lambda: _wrong(Agent("memory://")).add_hooks(SilentHooks),
        InvalidSetting,
        ("SilentHooks", "is a class", "add_hooks(SilentHooks())"),
    ),
    "a clock that is none": (lambda: Agent("memory://", clock=_wrong(5)), InvalidSetting, ("clock=5", "wall_ns()")),
    "a truth in words": (lambda: Agent("memory://", sigterm=_wrong("no")), InvalidSetting, ("sigterm='no'", "False")),
    "a share that is a percentage": (lambda: _login(soft=10), InvalidLimit, ("soft 10", "0.1, or '10%'", "10 % more")),
    "a percentage above all": (lambda: _login(soft="1000%"), InvalidLimit, ("soft 10.0", "from 0 to 1")),
    "a share of less than one": (lambda: _login(soft=0.1), InvalidSetting, ("soft=0.1", "no effect", "at least 0.2")),
    "one key where many are wanted": (
        lambda: _login().allow_many(_wrong("ada")),
        InvalidKey,
        ("not the single key 'ada'", "write ['ada']"),
    ),
    "one key to warm": (lambda: _login().warm("ada"), InvalidKey, ("not the single key 'ada'", "write ['ada']")),
    "bytes where keys are wanted": (
        lambda: _login().allow_many(_wrong(b"ada")),
        InvalidKey,
        ("not the single key b'ada'",),
    ),
    "None as a key": (lambda: _login().allow(_wrong(None)), InvalidKey, ("not None", "name what is counted")),
    "one of several that is a number": (lambda: _login(["5/minute", 9]), InvalidLimit, ("9", "not int", "Limit obj")),
    "an empty list of limits": (lambda: _login([]), InvalidLimit, ("1 to 16 quotas",)),
    "a misspelt unit": (
        lambda: _login("5/minuet"),
        InvalidLimit,
        ("'5/minuet', at character 3: unknown unit", "did you mean 'minute'?"),
    ),
    "a misspelt policy": (lambda: _login(policy="strikt"), InvalidSetting, ("'strikt'", "did you mean 'strict'?")),
    "a misspelt algorithm": (
        lambda: _login(algorithm="token_bucket"),
        InvalidLimit,
        ("'token_bucket'", "did you mean 'token-bucket'?"),
    ),
    "a misspelt scheme": (lambda: Agent("rediss+clutser://a"), UnknownHub, ("did you mean 'rediss+cluster'?",)),
    "a scheme in capitals": (lambda: Agent("REDIS://a"), InvalidSetting, ("REDIS://a", "write redis://")),
    "a misspelt limit": (
        lambda: _agent_with("login").limiter("logim"),
        UnknownLimit,
        ("declared: login", "did you mean 'login'?"),
    ),
    "a socket on a host": (
        lambda: Agent("redis+unix://run/r.sock"),
        InvalidSetting,
        ("redis+unix://run/r.sock", "names a host", "the whole path"),
    ),
    "a window of a negative time": (lambda: Limit(5, timedelta(-1)), InvalidLimit, ("window of -86400.0 s",)),
    "an interval of no time": (lambda: Agent("memory://", sync_interval=timedelta(0)), InvalidSetting, ("=0.0:",)),
    "waiting on a thread with an event loop": (
        lambda: asyncio.run(_waits()),
        WrongMoment,
        ("hold up the event loop", "use `await limiter.wait('ada')`"),
    ),
    "a slot that is held": (
        lambda: _hold_twice(_agent_with().concurrency("jobs", 2).slot("ada")),
        WrongMoment,
        ("slot of 'ada' is held already", "make another slot"),
    ),
    "a negative timeout": (
        lambda: _login().wait_blocking("ada", timeout=timedelta(-1)),
        InvalidSetting,
        ("timeout=-86400.0", "0 or more"),
    ),
}

MISTAKES = LIMITS | REQUESTS | SETTINGS | SPELLINGS

OUT_OF_RANGE: dict[str, tuple[object, ...]] = {
    "sync_interval": (0, -1, 0.0009, 3600.1, float("nan"), float("inf"), "0.1", True, None),
    "min_sync_interval": (-0.1, 0.2, "0.1", True),
    "max_silence": (-0.1, 60.1, float("nan"), "1", True, None),
    "lease_ttl": (0, 0.5, 86_400.1, "30", True),
    "exchange_timeout": (0, -1, 60.1, float("nan"), "1", True, None),
    "stop_timeout": (-0.1, 600.1, float("nan"), "1", True, None),
    "region_share": (0, -0.1, 1.1, 1e-9, float("nan"), "1", True, None),
    "max_keys": (0, -1, 1.5, "10", True, None),
    "new_keys_max": (0, -1, 1.5, "10", True, None),
    "key_bytes_max": (0, -1, 1.5, "10", True, None),
    "namespace": ("", "a b", "a/b", "ä", 42, None),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_with_its_fact_its_value_and_its_remedy(mistake: str) -> None:
    """At the moment when it is made, by an error of the package."""
    make_it, error, words = MISTAKES[mistake]

    with pytest.raises(ReconvergeError) as caught:
        make_it()

    assert error is type(caught.value)
    assert [] == [word for word in words if word not in str(caught.value)]


@pytest.mark.parametrize(
    ("setting", "value"), [(name, value) for name, values in OUT_OF_RANGE.items() for value in values]
)
def test_a_setting_out_of_range_is_told_with_its_range(setting: str, value: object) -> None:
    """And neither corrected nor passed on in silence."""
    with pytest.raises(InvalidSetting) as caught:
        Agent("memory://", **{setting: _wrong(value)})

    assert str(caught.value).startswith(f"{setting}={value!r}: ")
    assert (setting, repr(value)) == (caught.value.name, repr(caught.value.value))
    assert "must be" in str(caught.value) or "may contain only" in str(caught.value)


def test_a_mistake_costs_nothing() -> None:
    """The limit is as it was before."""
    login = _login()

    for make in (lambda: login.allow("ada", 6), lambda: login.allow("ada", -1), lambda: login.reserve("ada", 6)):
        with pytest.raises(ReconvergeError):
            make()

    assert 0 == login.usage("ada").own
    assert 5 == login.test("ada").remaining


def test_declaring_a_limit_again_alike_is_no_mistake() -> None:
    """It is the same limiter, however it is written."""
    agent = Agent("memory://")
    login = agent.limit("login", "5/minute")

    assert login is agent.limit("login", Limit(5, 60.0))
    assert login is agent.limit("login", "5 per 60 seconds", policy="balanced")
    assert login is agent.limiter("login")


@pytest.mark.parametrize("declared", ["5/minute", "5/minute; 9/hour", "5/hour"])
def test_keys_that_are_texts_of_objects_are_told_of_once_for_each_limit(
    declared: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Each object is a key of its own. Other keys in angle brackets are keys like all others."""
    agent = Agent("memory://" if declared != "5/hour" else MemoryHub(), namespace="objects")
    limiters = [agent.limit(f"{declared[:1]}-{number}-{len(declared)}", declared) for number in range(2)]
    for limiter in limiters:
        limiter.allow("<b>")
    assert "" == caplog.text
    for limiter in limiters:
        for each in [object() for _ in range(9)]:
            limiter.allow(str(each))
    agent.stop()

    for limiter in limiters:
        assert 1 == caplog.text.count(f"a key of the limit '{limiter.name}' is '<object object at 0x")
    assert "return what identifies it, as str(user.id)" in caplog.text


def test_a_missing_package_is_told_with_what_to_install() -> None:
    """Where Redis's client is not installed, which a process of its own pretends."""
    with Process("has_no_client", "redis://localhost") as process:
        status, (said,) = process.ends()

    assert 0 == status
    assert (
        "MissingExtra: a redis:// hub needs the package 'redis'; install it with: pip install 'reconverge[redis]', or "
        "in a clone of reconverge, as long as it is not on PyPI: pip install '.[redis]'" == said
    )


def test_an_unavailable_hub_is_told_by_whoever_asks_it() -> None:
    """Whoever decides is never told; whoever asks the hub itself is, with the reason."""
    with pytest.raises(HubUnavailable) as caught:
        net_at(f"redis://127.0.0.1:{free_port()}/0")

    assert "refused" == caught.value.kind
    assert caught.value.applied is False
    assert "refused: " in str(caught.value)


def test_every_error_of_the_package_is_provoked_here() -> None:
    """None is declared that nobody can meet; what eventlet does to a process is provoked in one of its own."""
    declared = {thing for thing in vars(errors).values() if _is_error(thing)}
    provoked = {error for _, error, _ in MISTAKES.values()} | {MissingExtra, HubUnavailable}
    provoked |= {EventletPatched}  # in test_green_threads.py
    provoked |= {LeaseEnded}  # in test_slots.py

    assert declared - {ReconvergeError} == provoked
    assert declared <= {getattr(reconverge, name) for name in reconverge.__all__}


async def _waits() -> None:
    _login().wait_blocking("ada")


def _hold_twice(slot: Slot) -> None:
    with slot:
        slot.acquire()


def _is_error(thing: object) -> bool:
    return isinstance(thing, type) and issubclass(thing, ReconvergeError)


def _agent_with(*names: str) -> Agent:
    agent = Agent("memory://")
    for name in names:
        agent.limit(name, "5/minute")
    return agent


_OF_LIMITS = sorted(
    {*inspect.signature(Agent.limit).parameters, *inspect.signature(Agent.concurrency).parameters} - {"self", "name"}
)


@pytest.mark.parametrize("name", sorted(set(inspect.signature(Agent.__init__).parameters) - {"self"}))
def test_a_setting_cannot_be_assigned_to_an_agent(name: str) -> None:
    """It is taken when the agent is made, and read only then."""
    agent = Agent("memory://")
    with pytest.raises(AttributeError, match=name):
        setattr(agent, name, "off")


@pytest.mark.parametrize("name", [*_OF_LIMITS, "quota"])
def test_a_setting_cannot_be_assigned_to_a_limiter(name: str) -> None:
    """It is declared with the limit; of a quota, `change` makes another."""
    limiter = Agent("memory://").limit("login", "5/minute")
    with pytest.raises(AttributeError, match=name):
        setattr(limiter, name, "off")


def test_the_error_about_an_assignment_shows_the_call() -> None:
    """The one that takes the setting, or that changes a quota."""
    agent = Agent("memory://")
    with pytest.raises(AttributeError, match=re.escape("write Agent(policy=...)")):
        agent.policy = "strict"  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=re.escape("limiter.change(...)")):
        agent.limit("login", "5/minute").quota = 10  # type: ignore[attr-defined]


def test_a_test_may_replace_a_method_of_a_limiter(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with any other object."""
    limiter = Agent("memory://").limit("login", "5/minute")
    turned: list[str] = []
    monkeypatch.setattr(limiter, "switch", turned.append)

    limiter.switch("off")

    assert ["off"] == turned
