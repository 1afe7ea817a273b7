"""Goal: whoever counts with the library `limits` on a storage of ours is told the truth, in that library's words.

Method: its own strategies, blocking and asynchronous, on storages that are alone and whose time the test owns; so every
answer is exact.
"""

from __future__ import annotations

import asyncio
import logging
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

import limits.aio.strategies
import pytest
from limits import RateLimitItem, RateLimitItemPerMinute, RateLimitItemPerSecond, WindowStats, parse
from limits.storage import storage_from_string
from redis.credentials import UsernamePasswordCredentialProvider

from reconverge import InvalidCost, InvalidSetting
from reconverge.integrations.dropin.storage import FIXED, LIMITS_MAX, MOVING, SLICES, SLIDING
from reconverge.limit import LOG_QUOTA_MAX, QUOTA_MAX
from reconverge.testing import ManualClock
from tests.support.applications.storages import limiter_at, storage_at
from tests.support.kernel.odd import BrokenClock
from tests.support.servers import RedisServer

MOMENT_S = 0.001
ITEM = parse("5/minute")
START = 1_700_000_040.0
"""A moment at which a minute begins."""


class AskedStrategy:
    """One strategy of the library on one storage, asked in the same way whether it is asynchronous or not."""

    def __init__(self, strategy: str, *, asynchronous: bool = False, **options: Any) -> None:
        self.clock = ManualClock(start=START)
        self._strategy = strategy
        uri = "async+reconverge+memory://" if asynchronous else "reconverge+memory://"
        self._limiter = limiter_at(uri, strategy, clock=self.clock, **options)
        self.storage = self._limiter.storage

    def hit(self, item: RateLimitItem = ITEM, *whom: str, cost: int = 1) -> bool:
        return bool(self._said(self._limiter.hit(item, *whom, cost=cost)))

    def test(self, item: RateLimitItem = ITEM, *whom: str, cost: int = 1) -> bool:
        return bool(self._said(self._limiter.test(item, *whom, cost=cost)))

    def stats(self, item: RateLimitItem = ITEM, *whom: str) -> WindowStats:
        stats: WindowStats = self._said(self._limiter.get_window_stats(item, *whom))
        return stats

    def wait_s(self, item: RateLimitItem = ITEM, *whom: str) -> float:
        """Seconds until the reset time. Of a sliding window the library reckons it by the machine's clock."""
        if self._strategy != SLIDING:
            return self.stats(item, *whom).reset_time - float(self.storage.book.now())
        *_, seconds = self.of("get_sliding_window", item.key_for(*whom), item.get_expiry())
        return float(seconds % item.get_expiry())

    def clear(self, item: RateLimitItem = ITEM, *whom: str) -> None:
        self._said(self._limiter.clear(item, *whom))

    def of(self, method: str, *arguments: Any, **named: Any) -> Any:
        return self._said(getattr(self.storage, method)(*arguments, **named))

    def admitted_of(self, attempts: int, item: RateLimitItem = ITEM, *whom: str) -> int:
        return sum(self.hit(item, *whom) for _ in range(attempts))

    @staticmethod
    def _said(answer: Any) -> Any:
        if not asyncio.iscoroutine(answer):
            return answer
        try:
            answer.send(None)  # nothing here is ever waited for, so a coroutine ends where it begins
        except StopIteration as end:
            return end.value
        raise AssertionError("a coroutine of the storage waited for something")


Ask = Callable[..., AskedStrategy]


@pytest.fixture(params=["blocking", "asynchronous"])
def ask(request: pytest.FixtureRequest) -> Ask:
    """Makes storages, of both kinds in turn."""
    return lambda strategy, **options: AskedStrategy(strategy, asynchronous=request.param == "asynchronous", **options)


every_strategy = pytest.mark.parametrize("strategy", [FIXED, MOVING, SLIDING])


# -------------------------------------------------------------------- what strategies say


@every_strategy
def test_as_many_are_admitted_as_the_limit_says(strategy: str, ask: Ask) -> None:
    """Not one more, and every key has a quota of its own."""
    asked = ask(strategy)

    assert 5 == asked.admitted_of(7, ITEM, "ada")
    assert 5 == asked.admitted_of(7, ITEM, "eve")


@every_strategy
def test_what_is_left_is_told_and_what_is_asked_is_answered_alike(strategy: str, ask: Ask) -> None:
    """`remaining` counts down to zero, and `test` says at each step what `hit` then does; asking charges nothing."""
    asked = ask(strategy)
    left: list[int] = []
    agreed: list[bool] = []
    for _ in range(6):
        left.append(asked.stats().remaining)
        foreseen = asked.test()
        agreed.append(foreseen == asked.hit())

    assert [5, 4, 3, 2, 1, 0] == left
    assert all(agreed)


@every_strategy
def test_the_reset_time_is_when_there_is_room_again(strategy: str, ask: Ask) -> None:
    """A moment earlier nothing is admitted, and then something is."""
    asked = ask(strategy)
    asked.hit(cost=2)
    asked.clock.advance(50)
    asked.hit(cost=3)
    wait_s = asked.wait_s()

    asked.clock.advance(wait_s - MOMENT_S)
    assert not asked.hit()
    asked.clock.advance(2 * MOMENT_S)
    assert asked.hit()


@pytest.mark.parametrize("align", ["clock", "first-hit"])
@pytest.mark.parametrize("begun_s", [0.0, 0.00003, 0.37, 0.93, 0.99997, 2.5])
@pytest.mark.parametrize("quota", ["1/second", "3/5 seconds", "5/minute"])
@every_strategy
def test_a_client_that_keeps_to_flask_limiters_retry_after_is_admitted_at_the_first_try(
    strategy: str, quota: str, begun_s: float, align: str, ask: Ask
) -> None:
    """Flask-Limiter cuts the reset time to whole seconds, and what is left until then as well."""
    asked, item = ask(strategy, align=align), parse(quota)
    asked.clock.advance(begun_s)
    for pause_s in (0.0, 0.1, 0.62):
        asked.admitted_of(item.amount, item)
        asked.clock.advance(pause_s)
        asked.admitted_of(item.amount + 1, item)  # of the next window, if that has begun meanwhile
        now_s = asked.storage.book.now()
        told_s = int(int(now_s + asked.wait_s(item) + 1) - now_s)
        asked.clock.advance(told_s)

        assert asked.hit(item)


@every_strategy
def test_the_reset_time_is_when_more_is_left(strategy: str, ask: Ask) -> None:
    """Also where something is left already: the moment at which the first of what counts is forgotten."""
    asked = ask(strategy)
    asked.hit(cost=2)
    asked.clock.advance(50)
    asked.hit()
    wait_s = asked.wait_s()

    asked.clock.advance(wait_s - MOMENT_S)
    assert 2 == asked.stats().remaining
    asked.clock.advance(2 * MOMENT_S)
    assert asked.stats().remaining > 2


@every_strategy
def test_the_reset_time_of_a_key_that_was_not_used_is_as_the_library_has_it(strategy: str, ask: Ask) -> None:
    """Now; of a moving window a window from now, in all of the library's own storages."""
    asked = ask(strategy)

    assert (60 if strategy == MOVING else 0) == asked.wait_s()
    assert 5 == asked.stats().remaining


def test_storages_that_align_otherwise_are_two() -> None:
    """On one agent, too: what begins elsewhere is another count."""
    uri = "reconverge+memory://aligned?policy=strict"
    one, two = limiter_at(uri, FIXED), limiter_at(uri, FIXED, align="first-hit")

    assert one.storage.book.agent is two.storage.book.agent
    assert [5, 5] == [sum(limiter.hit(ITEM) for _ in range(6)) for limiter in (one, two)]


@pytest.mark.parametrize(("align", "wait_s"), [("clock", 20), ("first-hit", 60)])
def test_a_fixed_window_begins_where_the_storage_says(align: str, wait_s: int, ask: Ask) -> None:
    """With the minute, unless one asks for what the library's own storages do: with the first hit."""
    asked = ask(FIXED, align=align)
    asked.clock.advance(40)
    asked.admitted_of(5)

    asked.clock.advance(wait_s - MOMENT_S)
    assert not asked.hit()
    asked.clock.advance(MOMENT_S)
    assert asked.hit()


def test_a_sliding_window_that_is_full_for_longer_than_a_window_says_so(ask: Ask) -> None:
    """There is room after 72 seconds, though the library takes times modulo the window."""
    asked = ask(SLIDING)
    asked.admitted_of(5)

    assert pytest.approx(72.0, abs=0.002) == asked.wait_s()


@every_strategy
def test_a_refusal_costs_nothing(strategy: str, ask: Ask) -> None:
    """Neither one for which too little was left, nor one that asks for more than there ever is."""
    asked = ask(strategy)

    assert not asked.hit(cost=6)
    assert asked.hit(cost=4)
    assert not asked.hit(cost=2)
    assert asked.hit()
    assert not asked.hit()


@every_strategy
def test_what_is_cleared_begins_anew(strategy: str, ask: Ask) -> None:
    """Nobody else is forgotten with it."""
    asked = ask(strategy)
    asked.admitted_of(5, ITEM, "ada")
    asked.admitted_of(5, ITEM, "eve")

    asked.clear(ITEM, "ada")

    assert 5 == asked.admitted_of(6, ITEM, "ada")
    assert 0 == asked.admitted_of(1, ITEM, "eve")


@every_strategy
def test_a_reset_forgets_all_and_says_how_many(strategy: str, ask: Ask) -> None:
    """Keys that have used nothing do not count."""
    asked = ask(strategy)
    for whom in ("ada", "eve", "bob"):
        asked.hit(ITEM, whom)
    asked.stats(ITEM, "zoe")

    assert 3 == asked.of("reset")
    assert [5, 5, 5] == [asked.stats(ITEM, whom).remaining for whom in ("ada", "eve", "bob")]
    assert 0 == asked.of("reset")


@every_strategy
def test_a_limit_of_nothing_admits_nothing(strategy: str, ask: Ask) -> None:
    """The library reads `0/minute`, and means it."""
    asked = ask(strategy)

    assert not asked.hit(parse("0/minute"))
    assert not asked.test(parse("0/minute"))
    assert 0 == asked.stats(parse("0/minute")).remaining


@every_strategy
def test_a_limit_beyond_all_bounds_is_the_largest_there_is(strategy: str, ask: Ask) -> None:
    """A quota of more than 10**12 and a window of more than ten years are cut to that, and count."""
    asked = ask(strategy)
    item = parse(f"{10**20} per 400 year")

    assert asked.hit(item, cost=7)
    assert asked.stats(item).remaining == pytest.approx(QUOTA_MAX, rel=1e-6)  # the library reckons in floating point
    assert not asked.hit(item, cost=QUOTA_MAX)


def test_a_moving_window_too_large_for_a_log_goes_by_slices(ask: Ask) -> None:
    """A log remembers every charge; from 100,001 on, a hundred counts do, and forget by a hundredth late at most."""
    asked = ask(MOVING)
    exact, sliced = (RateLimitItemPerMinute(amount) for amount in (LOG_QUOTA_MAX, LOG_QUOTA_MAX + 1))
    for item in (exact, sliced):
        assert asked.hit(item, cost=item.amount)
    limiters = asked.storage.book.agent.stats().limits

    assert {"moving-window/100000-per-1-minute", "moving-window/100001-per-1-minute"} == set(limiters)
    asked.clock.advance(60)
    assert asked.hit(exact)
    asked.clock.advance(60 / SLICES)
    assert asked.hit(sliced)


# -------------------------------------------------------------------- which key, which limit


def test_strategies_do_not_count_for_each_other() -> None:
    """On one storage, under one key: three counts."""
    limiters = [limiter_at("reconverge+memory://strategies", strategy) for strategy in (FIXED, MOVING, SLIDING)]

    assert [5, 5, 5] == [sum(limiter.hit(ITEM, "ada") for _ in range(6)) for limiter in limiters]


@pytest.mark.parametrize(
    "whom",
    ["a/b", "1/2/day", "", "/", "\x00", "ü", "\ud800", "k" * 10_000_000, "ü" * 200, "5/1/minute"],
    ids=["slash", "limit", "empty", "slashes", "nul", "umlaut", "surrogate", "long", "wide", "itself"],
)
@every_strategy
def test_whatever_comes_from_outside_is_a_key(strategy: str, whom: str) -> None:
    """It is counted like any other, apart from its neighbours, and takes no more room than 256 bytes."""
    asked = AskedStrategy(strategy)

    assert 5 == asked.admitted_of(6, ITEM, whom)
    assert 0 == asked.stats(ITEM, whom).remaining
    assert 5 == asked.admitted_of(6, ITEM, whom + "x")
    (entry,) = asked.storage.book._entries.values()
    assert 2 == len(entry.limiter.control.table.cells)
    assert all(len(key.encode()) <= 256 for key in entry.limiter.control.table.cells)
    assert 0 == asked.storage.book.bugs


def test_one_limit_written_in_two_ways_is_two() -> None:
    """The library's keys tell how a limit was written: 60 seconds are not a minute."""
    asked = AskedStrategy(FIXED)

    assert 5 == asked.admitted_of(6, RateLimitItemPerMinute(5))
    assert 5 == asked.admitted_of(6, RateLimitItemPerSecond(5, 60))


class PerFortnight(RateLimitItem):
    """A granularity of an application's own, with a name that no limit of ours could have."""

    GRANULARITY = type(RateLimitItemPerMinute.GRANULARITY)(14 * 86_400, "fort nightly ü")


class PerJiffy(RateLimitItemPerMinute):
    """An item that says another window than its key does."""

    def get_expiry(self) -> int:
        return 2


@every_strategy
@pytest.mark.parametrize("kind", [PerFortnight, PerJiffy])
def test_limits_of_an_applications_own_count_by_what_they_say(strategy: str, kind: type[RateLimitItem]) -> None:
    """Also where the key does not say it, or says something else."""
    asked = AskedStrategy(strategy)
    item = kind(5)

    assert 5 == asked.admitted_of(6, item, "ada")
    assert 0 == asked.stats(item, "ada").remaining
    assert not asked.test(item, "ada")
    asked.clock.advance(2 * item.get_expiry())
    assert 5 == asked.stats(item, "ada").remaining
    assert asked.hit(item, "ada")
    asked.clear(item, "ada")
    assert 5 == asked.stats(item, "ada").remaining


def test_a_key_that_names_no_limit_is_only_counted(ask: Ask) -> None:
    """For as long as it is said; reading it leaves it as it is."""
    asked = ask(FIXED)

    assert [0, 1, 11, 11] == [
        asked.of("get", "visits"),
        asked.of("incr", "visits", 10),
        asked.of("incr", "visits", 10, amount=10),
        asked.of("get", "visits"),
    ]
    assert pytest.approx(START + 10, abs=0.002) == asked.of("get_expiry", "visits")
    asked.clock.advance(10)
    assert 0 == asked.of("get", "visits")


def test_a_count_that_was_refused_lies_above_the_limit(ask: Ask) -> None:
    """By as much as was asked for; the library compares it with the amount, which it does not say beforehand."""
    asked = ask(FIXED)
    key = ITEM.key_for("ada")

    assert [3, 5, 9] == [asked.of("incr", key, 60, amount=amount) for amount in (3, 2, 4)]
    assert 5 == asked.of("get", key)


def test_what_older_versions_say_of_elastic_windows_is_heard(ask: Ask) -> None:
    """And has no effect: up to 4.8 the library passed it on with every hit."""
    asked = ask(FIXED)

    assert 1 == asked.of("incr", ITEM.key_for("ada"), 60, elastic_expiry=True, amount=1)


def test_limits_without_end_are_rounded_and_none_admits_more(caplog: pytest.LogCaptureFixture) -> None:
    """An application that makes up limits comes to 1000 of them; further ones share few, and one warning says so."""
    asked = AskedStrategy(FIXED)
    for amount in range(1, LIMITS_MAX + 1):
        asked.hit(RateLimitItemPerMinute(amount))
    declared = len(asked.storage.book.agent.stats().limits)
    admitted = {amount: asked.admitted_of(amount + 1, RateLimitItemPerSecond(amount, 90)) for amount in range(1, 130)}
    remaining = {amount: asked.stats(RateLimitItemPerSecond(amount, 90), "eve").remaining for amount in (1, 99)}

    assert LIMITS_MAX == declared
    assert admitted == {amount: 1 << amount.bit_length() - 1 for amount in admitted}
    assert {1: 1, 99: 64} == remaining
    assert len(asked.storage.book.agent.stats().limits) < LIMITS_MAX + 10
    assert len(asked.storage.book._entries) == LIMITS_MAX
    assert 1 == caplog.text.count("more than 1000 limits")


# -------------------------------------------------------------------- one agent for one URI


def test_storages_of_one_uri_count_together() -> None:
    """In one process, blocking or not; what is said in the query or beside it is the same."""
    uri = "reconverge+memory://together?policy=strict&max_keys=50"
    one = storage_at(uri)
    two = storage_at("async+reconverge+memory://together", policy="strict", max_keys=50)

    assert one.book.agent is two.book.agent
    assert one.book.agent is not storage_at("reconverge+memory://together", policy="strict").book.agent


def test_a_storage_of_memory_alone_is_alone() -> None:
    """Each limiter has its own, as with the library's `memory://`."""
    one, two = (limiter_at("reconverge+memory://", FIXED) for _ in range(2))

    assert [5, 5] == [sum(limiter.hit(ITEM, "ada") for _ in range(6)) for limiter in (one, two)]


def test_keys_are_bounded_by_max_keys() -> None:
    """Whoever makes up keys does not make a process grow; those beyond the bound share one quota."""
    asked = AskedStrategy(FIXED, max_keys=100)

    admitted = sum(asked.hit(ITEM, str(number), cost=3) for number in range(1000))

    assert 101 == admitted
    assert asked.storage.book.agent.stats().keys <= 101


@pytest.mark.parametrize(
    ("uri", "options", "complaint"),
    [
        ("reconverge+memory://?sync_interval=often", {}, "sync_interval='often': is not a number"),
        (
            "reconverge+memory://?max_overshot=0.1",
            {},
            "not known: max_overshot; memory:// has none; settings of a storage: align, asks_max, ",
        ),
        ("reconverge+memory://?max_overshot=0.1", {}, "when_hub_is_away; did you mean 'max_overshoot'?"),
        ("reconverge+memory://?policy=strict&policy=strict", {}, "is in the URI twice"),
        ("reconverge+memory://?policy=strict", {"policy": "strict"}, "is in the URI, too"),
        (
            "reconverge+memory://",
            {"sync_intervall": 1},
            "sync_intervall=1: is not a setting of a storage; known: align, asks_max, clock,",
        ),
        (
            "reconverge+memory://?align=calendar",
            {},
            "align='calendar': must be 'clock' (windows begin",
        ),
        ("reconverge+memory://", {"key_prefix": "a b"}, "namespace='a b'"),
        ("reconverge+memory://", {"policy": "bold"}, "bold"),
        ("reconverge+redis://localhost:port", {}, "port"),
    ],
)
def test_what_cannot_be_is_said_when_the_storage_is_made(uri: str, options: dict[str, Any], complaint: str) -> None:
    """With the name and the value, before any request comes."""
    with pytest.raises(InvalidSetting) as raised:
        storage_at(uri, **options)

    assert complaint in str(raised.value)


@pytest.mark.parametrize(
    ("option", "written"),
    [
        ("connection_pool", "reconverge+redis://HOST:PORT/DB"),
        ("startup_nodes", "reconverge+redis://HOST:PORT/DB"),
        ("username", "reconverge+redis://USER:PASSWORD@HOST"),
        ("password", "reconverge+redis://USER:PASSWORD@HOST"),
        ("ssl", "reconverge+rediss://HOST"),
        ("ssl_cert_reqs", "ssl_cert_reqs=none"),
        ("service_name", "reconverge+redis+sentinel://HOST/SERVICE"),
        ("sentinel_kwargs", "sentinel_password=..."),
    ],
)
def test_an_option_that_names_a_server_or_a_login_is_an_error_that_shows_the_uri(option: str, written: str) -> None:
    """Whoever changes nothing but the URI would else count elsewhere; the value, maybe a password, is not shown."""
    with pytest.raises(InvalidSetting, match="belongs in the storage's URI") as raised:
        storage_at("reconverge+redis://localhost/0", **{option: "hunter2"})

    assert written in str(raised.value)
    assert "hunter2" not in str(raised.value)


def test_a_credential_provider_of_the_client_is_asked_for_the_login(own_redis: RedisServer) -> None:
    """A provider that logs in to the library's own storages logs in to the hub as well."""
    own_redis.command("CONFIG", "SET", "requirepass", "hunter2")
    provider = UsernamePasswordCredentialProvider("default", "hunter2")
    storage = storage_at(f"reconverge+{own_redis.url}", credential_provider=provider)

    assert storage.check()


def test_options_of_another_client_are_passed_over_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever changes nothing but the URI may have tuned the client of Redis, which is not used here."""
    with caplog.at_level(logging.WARNING):
        storage_at("reconverge+memory://", socket_connect_timeout=30, key_prefix="shop")

    assert "the setting socket_connect_timeout is for a Redis client, which is not used here; remove it" in caplog.text


@pytest.mark.parametrize(
    ("uri", "hub"),
    [
        ("reconverge+redis://ada:secret@localhost:6379/0?sync_interval=1", "redis://***@localhost:6379/0"),
        ("async+reconverge+redis://localhost/0?sync_interval=0.2", "redis://localhost/0"),
        (
            "reconverge+rediss://localhost/0?ssl_check_hostname=false&max_keys=9",
            "rediss://localhost/0?ssl_check_hostname=false",
        ),
        ("reconverge+redis+unix:///run/redis.sock?db=1&policy=strict", "redis+unix:///run/redis.sock?db=1"),
        ("reconverge+embedded://storage?sync_interval=0.2", "embedded://storage"),
        ("reconverge+redis+cluster://127.0.0.1:7001,127.0.0.1:7002/?sync_interval=0.5", None),
        ("reconverge+rediss+cluster://127.0.0.1:7001,127.0.0.1:7002/?sync_interval=0.5", None),
        ("reconverge+redis+sentinel://127.0.0.1:26379,127.0.0.1:26380/shop/1?sync_interval=0.5", None),
        ("reconverge+rediss+sentinel://127.0.0.1:26379/shop?sync_interval=0.5", None),
        ("reconverge+mqtt://127.0.0.1:1883?sync_interval=0.5", None),
        ("reconverge+mqtts://127.0.0.1?sync_interval=0.5", None),
    ],
)
def test_every_hub_can_be_named(uri: str, hub: str | None) -> None:
    """Settings are taken out of the query, and the rest is the hub's; nothing is connected to yet."""
    storage = storage_at(uri)

    assert (hub or uri.removeprefix("reconverge+").partition("?")[0]) == storage.storage


# -------------------------------------------------------------------- what goes wrong


@every_strategy
def test_whatever_breaks_the_request_goes_on(strategy: str, caplog: pytest.LogCaptureFixture) -> None:
    """It is counted each time, and told at most once a minute."""
    clock = BrokenClock(start=START)
    limiter = limiter_at("reconverge+memory://", strategy, clock=clock)
    limiter.hit(ITEM, "ada")

    clock.broken = True
    admitted = [limiter.hit(ITEM, "ada") for _ in range(10)]

    assert [True] * 10 == admitted
    assert 10 == limiter.storage.book.bugs
    assert 1 == caplog.text.count("the request goes on")
    assert "no clock" in caplog.text
    assert limiter.test(ITEM, "ada")
    assert 5 == limiter.get_window_stats(ITEM, "ada").remaining
    limiter.clear(ITEM, "ada")
    assert 0 == limiter.storage.reset()


@every_strategy
def test_a_cost_that_is_none_is_told(strategy: str, ask: Ask) -> None:
    """It is the caller's mistake; whoever asked for wrapped errors gets the library's."""
    with pytest.raises(InvalidCost):
        ask(strategy).hit(cost=-1)


@every_strategy
def test_parts_of_a_request_are_rounded_up(strategy: str, ask: Ask) -> None:
    """A function of the application may say that something costs 2.5."""
    asked = ask(strategy)

    assert asked.hit(cost=2.5)  # type: ignore[arg-type]  # slowapi does not look
    assert 2 == asked.stats().remaining


@pytest.mark.slow
def test_one_import_registers_all_schemes() -> None:
    """Each hub's, twice."""
    program = "import reconverge.integrations.limits_storage; from limits.storage import SCHEMES; print(*SCHEMES)"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    hubs = {entry.name for entry in entry_points(group="reconverge.hubs")} | {"memory"}

    assert {"redis+cluster", "redis+sentinel", "mqtt"} < hubs
    assert {f"{twin}reconverge+{hub}" for twin in ("", "async+") for hub in hubs} <= set(said.stdout.split())


def test_a_storage_obeys_what_is_published_with_its_secret() -> None:
    """It is the agent's setting, and refused where that refuses it; it does not stand in a URI, which is printed."""
    uri = "reconverge+redis://127.0.0.1:1/0"
    good, bad = "sixteen-or-more-bytes", "short"
    assert good not in storage_at(uri, settings_secret=good).storage

    with pytest.raises(InvalidSetting, match="settings_secret"):
        storage_at(uri, settings_secret=bad)
    with pytest.raises(InvalidSetting, match="settings_secret"):
        storage_at(f"{uri}?settings_secret={good}")


@every_strategy
@pytest.mark.parametrize("cost", ["2", None, float("nan"), [1]])
def test_a_cost_that_is_no_number_is_an_error_and_no_way_around_the_limit(
    strategy: str, cost: object, ask: Ask
) -> None:
    """An application that passes on what a client wrote would else have no limit for that client."""
    asked = ask(strategy)
    assert 5 == asked.admitted_of(6)

    with pytest.raises(InvalidCost, match="is not a number"):
        asked.of("incr" if strategy == FIXED else METHOD_OF[strategy], ITEM.key_for(), *ARGUMENTS_OF[strategy], cost)


METHOD_OF = {MOVING: "acquire_entry", SLIDING: "acquire_sliding_window_entry"}
ARGUMENTS_OF: dict[str, tuple[int, ...]] = {FIXED: (60,), MOVING: (5, 60), SLIDING: (5, 60)}


def test_a_key_prefix_is_another_word_for_the_namespace_in_a_uri_too() -> None:
    """The library's own storages have it among their options."""
    one = storage_at("reconverge+memory://prefixed?key_prefix=shop")

    assert one.book.agent is storage_at("reconverge+memory://prefixed?namespace=shop").book.agent


def test_words_of_the_storage_are_among_those_that_a_uri_may_have() -> None:
    """Other words may be misspelt beside them."""
    with pytest.raises(InvalidSetting, match=r"(?s)align.*in_doubt"):
        storage_at("reconverge+redis://localhost?alingn=clock")


@pytest.mark.parametrize(
    ("uri", "strategy", "remedy"),
    [
        ("async+reconverge+memory://", limits.strategies.FixedWindowRateLimiter, "leave async+ out"),
        ("async+memory://", limits.strategies.MovingWindowRateLimiter, "leave async+ out"),
        ("reconverge+memory://", limits.aio.strategies.FixedWindowRateLimiter, "write async+ before"),
        ("memory://", limits.aio.strategies.MovingWindowRateLimiter, "write async+ before"),
    ],
)
def test_a_storage_of_the_other_kind_is_an_error_with_what_to_write(uri: str, strategy: Any, remedy: str) -> None:
    """In the strategies, where the library asserts its kind without a word."""
    kind: Any = type(storage_from_string(uri))
    # A class of its own, as Python remembers what it was answered about a class, and other tests have asked.
    fresh: Any = type(kind)("Fresh", (kind,), {"STORAGE_SCHEME": None})

    with pytest.raises(InvalidSetting, match=f"storage='Fresh': .*{re.escape(remedy)}"):
        strategy(fresh(uri))
