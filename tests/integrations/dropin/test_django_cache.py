"""Goal: django-ratelimit counts with all processes together on a cache of ours, and that cache is one of Django's.

Method: Django's cache interface, blocking and asynchronous, alone and on a real Redis with two caches that are two
nodes, as two processes would be; and django-ratelimit's decorator on top of it.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import django
import pytest
from django.conf import settings
from django.core.cache.backends.base import CacheKeyWarning

from reconverge import InvalidSetting
from reconverge.integrations.django import cache as django_cache
from reconverge.integrations.dropin import shared_counts
from reconverge.runtime.log_throttle import LoggedOnce
from reconverge.testing import ManualClock
from tests.support.kernel.odd import BrokenClock
from tests.support.servers import RedisServer, free_port
from tests.support.waiting import eventually

THREADS = 4
KEYS = 300
numbers = itertools.count()
Cache = django_cache.ReconvergeCache


def cache_at(location: str, **options: Any) -> Any:
    return Cache(location, {"OPTIONS": options})


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(start=1_700_000_000)


@pytest.fixture
def cache(clock: ManualClock) -> Any:
    """A cache that is alone; what it counts goes by the test's time."""
    return cache_at("memory://", clock=clock, namespace=f"test-{next(numbers)}")


@pytest.fixture
def two(redis_server: RedisServer) -> tuple[Any, Any]:
    """Two nodes that count together."""
    options = {"sync_interval": 0.02, "namespace": f"test-{next(numbers)}"}
    return tuple(cache_at(redis_server.url, **options, max_keys=keys) for keys in (1001, 1002))


@pytest.fixture(autouse=True)
def _counts_end() -> Iterator[None]:
    yield
    django_cache._counts.clear()


# -------------------------------------------------------------------- one of Django's


def test_a_count_is_added_once_and_goes_up_and_down(cache: Any) -> None:
    """By what is said, and from where it was."""
    assert [True, False, 1, 4, 3] == [
        cache.add("hits", 1),
        cache.add("hits", 1),
        cache.get("hits"),
        cache.incr("hits", 3),
        cache.decr("hits"),
    ]


def test_a_count_that_begins_at_zero_is_there(cache: Any) -> None:
    """django-ratelimit adds a zero to look, and a one to count."""
    assert [True, False, 0, 1] == [cache.add("hits", 0), cache.add("hits", 1), cache.get("hits"), cache.incr("hits")]


def test_what_is_not_there_is_said_to_be_missing(cache: Any) -> None:
    """Django's caches say it so."""
    assert [None, "none", False, False, False] == [
        cache.get("hits"),
        cache.get("hits", "none"),
        cache.has_key("hits"),
        cache.touch("hits"),
        cache.delete("hits"),
    ]
    with pytest.raises(ValueError, match="not found"):
        cache.incr("hits")


@pytest.mark.parametrize("timeout", [10, 10.0, 9.5])
def test_a_count_ends_with_its_timeout(timeout: float, cache: Any, clock: ManualClock) -> None:
    """Not a moment earlier; then it can be added again, and begins anew."""
    cache.add("hits", 7, timeout)

    clock.advance(timeout - 0.001)
    assert 7 == cache.get("hits")
    clock.advance(0.001)
    assert cache.get("hits") is None
    assert cache.add("hits", 1, timeout)
    assert 1 == cache.get("hits")


def test_a_count_without_timeout_lasts(cache: Any, clock: ManualClock) -> None:
    """Ten years, which is as long as anything is counted."""
    cache.set("hits", 7, None)
    clock.advance(9 * 360 * 86_400)

    assert 7 == cache.get("hits")


@pytest.mark.parametrize("timeout", [0, -1])
def test_what_has_no_time_is_not_kept(timeout: int, cache: Any) -> None:
    """All caches of Django agree."""
    cache.set("hits", 1, timeout)

    assert cache.get("hits") is None


def test_set_begins_a_count_anew(cache: Any) -> None:
    """With the value that is set, whatever was there."""
    cache.add("hits", 7)
    cache.set("hits", 2)
    assert 3 == cache.incr("hits")
    cache.set("hits", "many")
    assert "many" == cache.get("hits")
    cache.set("hits", 5)
    assert 6 == cache.incr("hits")


def test_touch_gives_a_count_another_timeout(cache: Any, clock: ManualClock) -> None:
    """And leaves it as it is."""
    cache.add("hits", 7, 10)

    assert cache.touch("hits", 100)
    clock.advance(50)
    assert 7 == cache.get("hits")


def test_what_is_deleted_is_gone(cache: Any) -> None:
    """Counts and other values, one by one and all together."""
    cache.set_many({"hits": 7, "name": "ada", "more": 1, "last": "x"})

    assert cache.delete("hits")
    assert cache.delete("name")
    assert {"more": 1, "last": "x"} == cache.get_many(["hits", "name", "more", "last"])
    cache.clear()
    assert {} == cache.get_many(["more", "last"])
    assert cache.add("hits", 1)


@pytest.mark.parametrize("value", ["text", True, False, -1, 1.5, None, {"a": [1]}, b"\x00", 10**12 + 1])
def test_any_other_value_is_kept_as_it_is(value: object, cache: Any) -> None:
    """In this process, as `LocMemCache` does it; nothing of it is counted."""
    assert cache.add("value", value)
    assert not cache.add("value", "another")
    assert not cache.add("value", 1)

    kept = cache.get("value")
    assert value == kept
    assert type(value) is type(kept)
    assert [] == list(cache.counts._known)
    assert cache.touch("value", 5)
    assert "value" in cache


def test_get_or_set_keeps_what_was_there(cache: Any) -> None:
    """And calls what can be called when nothing was."""
    assert [3, 3] == [cache.get_or_set("hits", lambda: 3), cache.get_or_set("hits", 9)]


def test_versions_and_prefixes_are_kept_apart(clock: ManualClock) -> None:
    """They are part of the key."""
    one = Cache("memory://", {"OPTIONS": {"clock": clock}, "KEY_PREFIX": "one"})
    two = Cache("memory://", {"OPTIONS": {"clock": clock}, "KEY_PREFIX": "two"})
    one.set("hits", 1)
    one.set("hits", 2, version=2)

    assert [1, 2, None] == [one.get("hits"), one.get("hits", version=2), two.get("hits")]
    assert one.counts is two.counts
    assert 3 == one.incr_version("hits", 2, version=1)
    assert [None, 1] == [one.get("hits"), one.get("hits", version=3)]


async def test_the_asynchronous_methods_say_the_same(cache: Any) -> None:
    """And count in one step."""
    assert [True, 3, 2, 2, None, True, True, {"name": "ada"}, None, False] == [
        await cache.aadd("hits", 1),
        await cache.aincr("hits", 2),
        await cache.adecr("hits"),
        await cache.aget("hits"),
        await cache.aset("name", "ada"),
        await cache.atouch("name", 5),
        await cache.adelete("hits"),
        await cache.aget_many(["hits", "name"]),
        await cache.aclear(),
        await cache.ahas_key("name"),
    ]


def test_one_thread_begins_a_count_and_all_count_in_it(clock: ManualClock) -> None:
    """Django makes a cache for each thread, and of all that add a key one does."""
    together = Barrier(THREADS)

    def hit(_: int) -> int:
        own = cache_at("memory://", clock=clock, namespace="threads")
        added = 0
        for number in range(KEYS):
            together.wait()
            added += own.add(f"hits-{number}", 1) or not own.incr(f"hits-{number}")
        return added

    switch_interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(THREADS) as threads:
            added = sum(threads.map(hit, range(THREADS)))
    finally:
        sys.setswitchinterval(switch_interval)

    cache = cache_at("memory://", clock=clock, namespace="threads")
    assert KEYS == added
    assert {THREADS} == {cache.get(f"hits-{number}") for number in range(KEYS)}


class InterruptedClock(ManualClock):
    """A clock on which something else happens while it is read."""

    meanwhile: Callable[[], object] | None = None

    def monotonic_ns(self) -> int:
        now_ns = super().monotonic_ns()
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return now_ns


def test_a_count_that_is_begun_while_another_thread_sees_the_old_one_end_is_kept() -> None:
    """Whoever finds the old one over does not throw away the new one, in which to go on counting."""
    clock = InterruptedClock(start=1_700_000_000)
    cache = cache_at("memory://", clock=clock, namespace="interrupted")
    cache.add("hits", 5, 10)
    clock.advance(10)
    clock.meanwhile = lambda: cache.add("hits", 1, 10)

    assert cache.get("hits") is None
    assert 2 == cache.incr("hits")


WORKER = """
import sys
from concurrent.futures import ThreadPoolExecutor
from reconverge.integrations.django.cache import ReconvergeCache

def hit(number):
    cache = ReconvergeCache(sys.argv[1], {"OPTIONS": {"sync_interval": 0.02, "namespace": sys.argv[2]}})
    return cache.add("hits", 1, 3600) or not cache.incr("hits")

with ThreadPoolExecutor(4) as threads:
    print(sum(threads.map(hit, range(200))), flush=True)
"""


def test_what_processes_and_threads_add_and_count_up_is_counted_once_each(redis_server: RedisServer) -> None:
    """django-ratelimit has one thread of a process add at most, all else counts up, and nothing is lost."""
    namespace = f"test-{next(numbers)}"
    one = cache_at(redis_server.url, sync_interval=0.02, namespace=namespace)
    command = [sys.executable, "-c", WORKER, redis_server.url, namespace]
    workers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    added = [int(worker.communicate()[0]) for worker in workers]

    assert all(count <= 1 for count in added)
    assert 1 <= sum(added)
    one.add("hits", 0, 3600)
    eventually(lambda: one.get("hits") == 600, "everything that was counted")


# -------------------------------------------------------------------- everything has a bound


def test_keys_of_any_length_are_counted(cache: Any) -> None:
    """Django warns of those that memcached would not take."""
    with pytest.warns(CacheKeyWarning):
        added = [cache.add("k" * length, 1) for length in (1000, 1000, 1001)]

    assert [True, False, True] == added


def test_counts_and_timeouts_are_bounded(cache: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest is forgotten here first; after a hundred different timeouts, further values stay in this process."""
    monkeypatch.setattr(shared_counts, "COUNTS_MAX", 10)
    for number in range(50):
        cache.add(f"key-{number}", 1, 60)
    for timeout in range(1, 200):
        cache.add(f"timeout-{timeout}", 1, timeout)

    assert 10 == len(cache.counts._known)
    assert shared_counts.WINDOWS_MAX == len(cache.counts._limiters)
    assert 2 == cache.incr("timeout-199")


def test_what_cannot_be_is_said_when_the_cache_is_made() -> None:
    """An option that is none is named; Django's own are Django's."""
    cache_at("memory://", MAX_ENTRIES=10, CULL_FREQUENCY=2)

    with pytest.raises(InvalidSetting, match="sync_intervall=1: is not a setting"):
        cache_at("memory://", sync_intervall=1)
    with pytest.raises(InvalidSetting, match="LOCATION"):
        cache_at("")


# -------------------------------------------------------------------- all processes together


def test_counts_are_shared_and_other_values_are_not(two: tuple[Any, Any]) -> None:
    """Which is what the cache promises, and no more."""
    one, other = two
    one.add("hits", 3)
    other.add("hits", 4)
    one.set("name", "ada")

    eventually(lambda: one.get("hits") == 7, "one counts with the other")
    eventually(lambda: other.get("hits") == 7, "and the other with one")
    assert other.get("name") is None


def test_a_value_that_is_not_shared_is_logged_once(
    cache: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A throttle of Django REST framework stores a list, and would admit its rate in each process."""
    monkeypatch.setattr(django_cache, "_logged", LoggedOnce())
    cache.add("hits", 1)
    assert "" == caplog.text
    cache.set("throttle_anon", [1_700_000_000.5])
    cache.add("throttle_user", [])

    [said] = caplog.messages
    assert "keeps a list in this process" in said
    assert "Let the throttle ask a limiter" in said


def test_who_adds_what_another_has_counted_is_told_so(two: tuple[Any, Any]) -> None:
    """It is told as soon as it has been heard of."""
    one, other = two
    one.add("hits", 3)
    other.counts.value("hits")
    other.add("hits", 0)
    eventually(lambda: other.get("hits") == 3, "the count is heard of")
    other.counts._known.clear()  # as a process that has forgotten it

    assert not other.add("hits", 1)
    assert 4 == other.incr("hits")


def test_what_is_deleted_is_deleted_everywhere(two: tuple[Any, Any]) -> None:
    """And what is set is set everywhere."""
    one, other = two
    one.add("hits", 3)
    other.add("hits", 4)
    eventually(lambda: one.get("hits") == 7, "one counts with the other")

    other.delete("hits")
    eventually(lambda: one.get("hits") == 0, "the deletion arrives")
    one.set("hits", 5)
    other.add("hits", 0)
    eventually(lambda: other.get("hits") == 5, "the new count arrives")


# -------------------------------------------------------------------- django-ratelimit


Hit = Callable[[], bool]


@pytest.fixture(scope="module")
def _django() -> None:
    """Django needs settings; the caches that are asked are put there by the tests."""
    if not settings.configured:
        settings.configure(CACHES={})
        django.setup()


def limited_by(cache: Any, monkeypatch: pytest.MonkeyPatch) -> Hit:
    """A view with five requests an hour on that cache; says whether a request is admitted."""
    from django.test import RequestFactory  # noqa: PLC0415  # Django has its settings by now
    from django_ratelimit import core  # noqa: PLC0415
    from django_ratelimit.decorators import ratelimit  # noqa: PLC0415

    @ratelimit(key="ip", rate="5/h", group="view", block=False)  # type: ignore[untyped-decorator]
    def view(request: Any) -> bool:
        return not request.limited

    def hit() -> bool:
        monkeypatch.setattr(core, "caches", {"default": cache})
        return bool(view(RequestFactory().get("/")))

    return hit


@pytest.mark.usefixtures("_django")
def test_django_ratelimit_counts_with_all_processes(two: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Five requests an hour are five of both together, once they know of each other."""
    one, other = (limited_by(cache, monkeypatch) for cache in two)

    assert [True, True, True] == [one(), one(), other()]
    eventually(lambda: [3, 3] == [*counts_of(two[0]), *counts_of(two[1])], "both know of all three")
    assert [True, True, False, False] == [other(), other(), other(), other()]
    eventually(lambda: not one(), "one is refused, too")


def counts_of(cache: Any) -> Iterator[int]:
    for known in list(cache.counts._known):
        yield cache.counts.value(known)


@pytest.mark.usefixtures("_django")
def test_django_ratelimit_goes_on_without_redis(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process counts alone then: five, and no exception."""
    hit = limited_by(cache_at(f"redis://127.0.0.1:{free_port()}/0"), monkeypatch)

    assert [True] * 5 + [False] * 3 == [hit() for _ in range(8)]


@pytest.mark.usefixtures("_django")
def test_whatever_breaks_the_request_goes_on(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """It is counted each time, and told at most once a minute."""
    clock = BrokenClock(start=1_700_000_000)
    cache = cache_at("memory://", clock=clock)
    hit = limited_by(cache, monkeypatch)
    hit()

    clock.broken = True
    admitted = [hit() for _ in range(8)]

    assert [True] * 8 == admitted
    assert cache.counts.bugs >= 8
    assert 1 == caplog.text.count("the request goes on")
