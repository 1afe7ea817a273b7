"""Other limiters, each used as its documentation shows it; a limiter that is not installed is reported as missing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, Final

from bench.child import Missing
from bench.decisions.candidate import DAY_S, Candidate, Setting, each
from bench.decisions.timing import Calls
from bench.servers import redis_on_loopback


def peer(module: str) -> Any:
    """Imports and returns the module of another limiter. Raises Missing if it is not installed."""
    try:
        return import_module(module)
    except ImportError as error:
        raise Missing(f"{module.partition('.')[0]} is not installed") from error


# -------------------------------------------------------------------- limits, alone and on Redis


def limits(strategy: str, *, stats: bool = False) -> Callable[[Setting], Candidate]:
    """Measures `limits` in memory; with `stats`, also the values that response fields need."""

    def make(setting: Setting) -> Candidate:
        storage = peer("limits.storage").MemoryStorage()
        limiter = getattr(peer("limits.strategies"), strategy)(storage)
        item = peer("limits").RateLimitItemPerDay(setting.quota)
        decide = partial(limiter.hit, item)
        if not stats:
            return Candidate(each(decide), decide)

        def run(keys: Calls) -> None:
            hit, get_window_stats = limiter.hit, limiter.get_window_stats
            for key in keys:
                hit(item, key)
                get_window_stats(item, key)

        return Candidate(run, decide)

    return make


def limits_on_redis(setting: Setting) -> Candidate:
    """Measures `limits` on a local Redis: the cost of a decision for the client alone."""
    port = setting.stack.enter_context(redis_on_loopback())
    storage = peer("limits.storage").RedisStorage(f"redis://127.0.0.1:{port}/0")
    limiter = peer("limits.strategies").FixedWindowRateLimiter(storage)
    decide = partial(limiter.hit, peer("limits").RateLimitItemPerDay(setting.quota))
    return Candidate(each(decide), decide)


def slowapi(setting: Setting) -> Candidate:
    """Measures a route of `slowapi`, in memory, without the rest of the application."""
    request_type = peer("starlette.requests").Request
    too_many = peer("slowapi.errors").RateLimitExceeded
    keyed = peer("slowapi").Limiter(key_func=lambda request: request.headers["key"])

    def route(request: object) -> None:
        """Does nothing."""

    limited = keyed.limit(f"{setting.quota}/day")(route)
    application = peer("types").SimpleNamespace(state=peer("types").SimpleNamespace(limiter=keyed))

    def ask(key: str) -> bool:
        headers = [(b"key", key.encode())]
        scope = {"type": "http", "path": "/", "method": "GET", "headers": headers, "app": application}
        try:
            limited(request=request_type(scope))
        except too_many:
            return False
        return True

    def arrange(keys: Any) -> Calls:
        scopes = (
            {"type": "http", "path": "/", "headers": [(b"key", key.encode())], "app": application} for key in keys
        )
        return [request_type(scope) for scope in scopes]

    def run(requests: Calls) -> None:
        for request in requests:
            try:  # noqa: SIM105  # the time of leaving a block would be measured as well
                limited(request=request)
            except too_many:
                pass

    return Candidate(run, ask, arrange=arrange)


# -------------------------------------------------------------------- the others


def throttled(algorithm: str) -> Callable[[Setting], Candidate]:
    """Measures `throttled-py`, with a store that has room for all keys; by default it keeps 1024."""

    def make(setting: Setting) -> Candidate:
        module = peer("throttled")
        store = module.MemoryStore(options={"MAX_SIZE": 2 * setting.keys})
        quota = module.per_day(setting.quota, burst=setting.quota)
        limit = module.Throttled(using=algorithm, quota=quota, store=store).limit
        return Candidate(each(limit), lambda key: not limit(key).limited)

    return make


def pyrate(bucket_of: Callable[[Any, list[Any]], Any]) -> Callable[[Setting], Candidate]:
    """Measures `pyrate-limiter`, with a bucket for every key, as its documentation shows it for many keys."""

    def make(setting: Setting) -> Candidate:
        module = peer("pyrate_limiter")
        clock = module.MonotonicClock()
        rates = [module.Rate(setting.quota, module.Duration.DAY)]

        class Factory(module.BucketFactory):  # type: ignore[misc, name-defined]
            """Makes a bucket when a key is new."""

            def __init__(self) -> None:
                self.buckets: dict[str, Any] = {}

            def wrap_item(self, name: str, weight: int = 1) -> Any:
                return module.RateItem(name, clock.now(), weight=weight)

            def get(self, item: Any) -> Any:
                bucket = self.buckets.get(item.name)
                if bucket is None:
                    bucket = self.buckets[item.name] = bucket_of(module, rates)
                return bucket

        acquire = partial(module.Limiter(Factory()).try_acquire, blocking=False)
        return Candidate(each(acquire), acquire)

    return make


def aiolimiter(setting: Setting) -> Candidate:
    """Measures `aiolimiter`, with a limiter for every key.

    It waits instead of refusing, so the call that is measured returns whether it would wait.
    """
    kind = peer("aiolimiter").AsyncLimiter
    limiters: dict[str, Any] = {}
    loop = asyncio.new_event_loop()
    setting.stack.callback(loop.close)

    async def ask(key: str) -> bool:
        limiter = limiters.get(key)
        if limiter is None:
            limiter = limiters[key] = kind(setting.quota, DAY_S)
        if not limiter.has_capacity():
            return False
        await limiter.acquire()
        return True

    async def admit_all(keys: Calls) -> None:
        for key in keys:
            limiter = limiters.get(key)
            if limiter is None:
                limiter = limiters[key] = kind(setting.quota, DAY_S)
            await limiter.acquire()

    async def ask_all(keys: Calls) -> None:
        for key in keys:
            await ask(key)

    run = admit_all if setting.admitted else ask_all
    return Candidate(lambda keys: loop.run_until_complete(run(keys)), lambda key: loop.run_until_complete(ask(key)))


def token_bucket(setting: Setting) -> Candidate:
    """Measures `token-bucket`."""
    module = peer("token_bucket")
    consume = module.Limiter(setting.quota / DAY_S, setting.quota, module.MemoryStorage()).consume
    return Candidate(each(consume), consume)


def rust(algorithm: str) -> Callable[[Setting], Candidate]:
    """Measures `rust-py-rate-limit`, the fastest of the other limiters."""

    def make(setting: Setting) -> Candidate:
        module = peer("rust_py_rate_limit")
        allow = module.RateLimiter(setting.quota, int(DAY_S), algorithm=algorithm).allow
        return Candidate(each(allow), allow)

    return make


PEERS: Final[dict[str, Callable[[Setting], Candidate]]] = {
    "limits, fixed window": limits("FixedWindowRateLimiter"),
    "limits, fixed window, hit and get_window_stats": limits("FixedWindowRateLimiter", stats=True),
    "limits, sliding window counter": limits("SlidingWindowCounterRateLimiter"),
    "limits, moving window": limits("MovingWindowRateLimiter"),
    **{
        f"throttled-py, {algorithm.replace('_', ' ')}": throttled(algorithm)
        for algorithm in ("fixed_window", "sliding_window", "token_bucket", "leaking_bucket", "gcra")
    },
    "pyrate-limiter, log": pyrate(lambda module, rates: module.InMemoryBucket(rates)),
    "pyrate-limiter, gcra": pyrate(lambda module, rates: module.StateBucket(rates, module.GCRA())),
    "aiolimiter": aiolimiter,
    "token-bucket": token_bucket,
    "rust-py-rate-limit, fixed window": rust("fixed"),
    "rust-py-rate-limit, sliding window": rust("sliding"),
}
ON_TOP: Final[dict[str, Callable[[Setting], Candidate]]] = {
    "slowapi, decorator": slowapi,
    "limits on Redis, CPU of the client": limits_on_redis,
}
"""The limiters that are not measured with a million keys: they would take minutes, and show nothing that ten thousand
do not."""
