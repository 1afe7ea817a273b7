"""A pytest plugin for the tests of other projects: their storages `memory://` and `redis://` become ours.

The variable UPSTREAM_STORAGE says with which policy and alignment; "theirs" leaves them as they are. Nothing of theirs
is changed but what the schemes stand for. Each test begins with nothing counted: an agent of its own for each storage
that is alone, and a namespace of its own in Redis, since emptying Redis does not empty an agent.
"""

from __future__ import annotations

import itertools
import os
import time  # noqa: TID251  # their tests put a function of their own in its place
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import django
import pytest
from django.conf import settings
from limits.storage import SCHEMES  # type: ignore[attr-defined]

from reconverge import Agent
from reconverge.integrations.limits_storage import AsyncReconvergeStorage, ReconvergeStorage

OURS = os.environ["UPSTREAM_STORAGE"] != "theirs"
SETTINGS = dict(zip(("policy", "align"), os.environ["UPSTREAM_STORAGE"].split(), strict=False)) if OURS else {}
"""With which of our storages' settings, if with ours."""
numbers = itertools.count()
used: list[Agent] = []
namespace = ""


class TimeOfDay:
    """A clock that goes by `time.time()` as it is just now, for their tests move that and expect to be followed."""

    def __init__(self) -> None:
        self._latest_ns = 0

    def wall_ns(self) -> int:
        return int(time.time() * 1_000_000_000)

    def monotonic_ns(self) -> int:
        self._latest_ns = max(self._latest_ns, self.wall_ns())
        return self._latest_ns


def settings_for(uri: str, options: dict[str, Any]) -> dict[str, Any]:
    """Their options, and what makes a test independent of the one before."""
    if uri.removeprefix("async+").startswith("memory"):
        return {"clock": TimeOfDay(), **SETTINGS, **options}
    return {**SETTINGS, **options} if "key_prefix" in options else {"namespace": namespace, **SETTINGS, **options}


class OurStorage(ReconvergeStorage):
    """The storage that their tests get for `memory://` and `redis://`."""

    STORAGE_SCHEME = ["memory", "redis"] if OURS else []

    def __init__(self, uri: str, wrap_exceptions: bool = False, **options: Any) -> None:
        super().__init__(uri, wrap_exceptions, **settings_for(uri, options))
        used.append(self.book.agent)


class OurAsyncStorage(AsyncReconvergeStorage):
    """The same for `async+memory://` and `async+redis://`."""

    STORAGE_SCHEME = ["async+memory", "async+redis"] if OURS else []

    def __init__(self, uri: str, wrap_exceptions: bool = False, **options: Any) -> None:
        super().__init__(uri, wrap_exceptions, **settings_for(uri, options))
        used.append(self.book.agent)


assert (SCHEMES["redis"] is OurStorage) == OURS


def pytest_configure() -> None:
    """Set up Django, where it is what is tested: with a cache of ours, or the one that django-ratelimit tests with."""
    if not Path("django_ratelimit").is_dir():
        return
    backend = "django.core.cache.backends."
    ours = {"BACKEND": "reconverge.integrations.django.cache.ReconvergeCache", "LOCATION": "memory://"}
    theirs = {"BACKEND": f"{backend}locmem.LocMemCache", "LOCATION": "ratelimit-tests"}
    settings.configure(
        CACHES={
            "default": ours if OURS else theirs,
            "connection-errors": {"BACKEND": f"{backend}memcached.PyMemcacheCache", "LOCATION": "nowhere.invalid:1"},
            "connection-errors-redis": {
                "BACKEND": "django_redis.cache.RedisCache",
                "LOCATION": "redis://nowhere.invalid",
                "OPTIONS": {"IGNORE_EXCEPTIONS": True},
            },
            "instant-expiration": {"BACKEND": f"{backend}dummy.DummyCache"},
        },
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        INSTALLED_APPS=["django_ratelimit"],
    )
    django.setup()


class Services:
    """In place of the containers that their tests start: whoever starts the tests has started a Redis."""

    def start(self, name: str) -> None:
        """Nothing to do for Redis; the test is left out if it wants something else."""
        if name not in ("redis", "redis-basic"):
            pytest.skip(f"there is no {name} here")

    def wait_for_service(self, *_: object) -> None:
        """It is there."""


@pytest.fixture(scope="session")
def docker_services() -> Services:
    """Under the name by which their fixtures ask for it."""
    return Services()


@pytest.fixture(autouse=True)
def _a_test_of_its_own() -> Iterator[None]:
    global namespace  # noqa: PLW0603  # storages are made by a library, which cannot be told
    namespace = f"upstream-{next(numbers)}"
    yield
    while used:
        used.pop().stop()
