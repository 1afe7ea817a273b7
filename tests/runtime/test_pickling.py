"""Goal: errors and sessions reach another process whole, as pools of processes need it.

Method: every class of errors that has a constructor of its own; then real pools.
"""

from __future__ import annotations

import importlib
import multiprocessing
import pickle
import pkgutil
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
import requests
from django.core.exceptions import ImproperlyConfigured

import reconverge
from reconverge import Agent, RateLimiter
from reconverge.errors import CostExceedsQuota, InvalidSetting, PortableError
from reconverge.integrations.decorators import limited
from reconverge.integrations.requests import LimitedAdapter, QuotaUsedUp
from reconverge.integrations.web.outcome import RateLimited

WAIT_S = 60.0
"""Far more than a pool needs; only a failing test waits so long."""


def errors() -> Iterator[type[Exception]]:
    """Yields every public class of errors in the package that has a constructor of its own."""
    for module in pkgutil.walk_packages(reconverge.__path__, "reconverge.", onerror=lambda _: None):
        with suppress(ImportError, ImproperlyConfigured):  # the compiled kernel may not be there, nor Django's settings
            for value in vars(importlib.import_module(module.name)).values():
                if isinstance(value, type) and issubclass(value, Exception) and value.__module__ == module.name:
                    own = vars(value).get("__init__")
                    if own is not None and not value.__name__.startswith("_"):
                        yield value


def copied(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))  # noqa: S301  # our own


def test_every_error_with_a_constructor_of_its_own_can_be_pickled() -> None:
    """Its message and attributes are in the copy; an attribute that cannot be pickled is None there."""
    found = list(errors())
    assert len(found) > 10
    for kind in found:
        assert issubclass(kind, PortableError), kind
        error = kind.__new__(kind)
        error.args = ("the message",)
        vars(error).update(cost=3, function=lambda: None)

        assert (kind, ("the message",), {"cost": 3, "function": None}) == (
            type(copied(error)),
            copied(error).args,
            vars(copied(error)),
        )


def too_much(_: object) -> bool:
    return Agent("memory://").limit("calls", "5/minute").allow("ada", 6)


def refused(_: object) -> None:
    @limited("1/minute", agent=Agent("memory://"), key="ada")
    def send() -> None: ...

    send()
    send()


@pytest.mark.slow
def test_errors_come_out_of_pools() -> None:
    """With their facts. Without a copy, an executor breaks, and a pool waits for ever."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as executor, spawn.Pool(1) as pool:
        for function, kind in ((too_much, CostExceedsQuota), (refused, RateLimited)):
            assert isinstance(executor.submit(function, 0).exception(WAIT_S), kind)
            with pytest.raises(kind) as raised:
                pool.map_async(function, [0]).get(WAIT_S)
    assert isinstance(raised.value, RateLimited)
    assert raised.value.decision is not None
    assert raised.value.retry_after > 0


@pytest.mark.slow
def test_a_limiter_that_a_process_of_a_pool_lacks_is_an_error_of_the_task() -> None:
    """It comes out of the pool, with the remedy. An error while the task is read would end the process instead."""
    spawn = multiprocessing.get_context("spawn")
    agent = Agent("memory://", namespace="pooled")
    limiter = agent.limit("api", "5/hour")
    lacked = "limiter='api': was pickled, and no agent with namespace='pooled' .* declare it here first"
    with ProcessPoolExecutor(1, mp_context=spawn) as executor, spawn.Pool(1) as pool:
        for function in (limiter.test, partial(RateLimiter.allow, limiter), partial(RateLimiter.hit, limiter)):
            with pytest.raises(InvalidSetting, match=lacked):
                executor.submit(function, "ada").result(WAIT_S)
            with pytest.raises(InvalidSetting, match=lacked):
                pool.map_async(function, ["ada"]).get(WAIT_S)
        with pytest.raises(TypeError, match=r"pass the limiter, .*pool\.submit\(RateLimiter\.allow, limiter, key\)"):
            pool.map_async(limiter.allow, ["ada"]).get(WAIT_S)


def test_a_session_keeps_its_limit_when_it_is_pickled() -> None:
    """The copy counts with the original; in a process without the limit, reading it is an error with the remedy."""
    agent = Agent("memory://", namespace="pickled")
    session = requests.Session()
    session.mount("http://", LimitedAdapter(agent.limit("api", "1/hour"), key=by_ada, timeout=0))
    copy: requests.Session = copied(session)
    limiter = agent.limiters["api"]

    assert copied(limiter) is limiter
    assert limiter.test("ada")
    agent.limit("api", "1/hour").hit("ada")
    with pytest.raises(QuotaUsedUp) as error:
        copy.get("http://192.0.2.1/")
    assert error.value.retry_after == copied(error.value).retry_after
    with pytest.raises(InvalidSetting, match="declare it here first"):
        pickle.loads(pickle.dumps(session).replace(b"pickled", b"another"))  # noqa: S301  # our own


def test_an_agent_is_made_in_each_process() -> None:
    """The error of the compiled kernel named a class that no user knows."""
    with pytest.raises(TypeError, match="make one in each process"):
        pickle.dumps(Agent("memory://"))


def by_ada(_request: object) -> str:
    return "ada"
