"""The interface of the limiters that decisions are measured with, with our own limiter and the floors."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

from bench.child import PURE, Missing
from bench.decisions.timing import Calls
from bench.servers import redis_on_loopback
from reconverge import Agent, Limit, RateLimiter
from reconverge.kernel import COMPILED

BATCH: Final = 256
ROOMY: Final = 1_000_000_000
"""A quota that no measurement uses up."""
ROOMY_BURST: Final = 100_000_000
"""The burst of a bucket that no measurement uses up."""
DAY_S: Final = 86_400.0
HEARD_S_MAX: Final = 120.0
INTERVAL_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Setting:
    """The circumstances for which a candidate is made."""

    keys: int
    admitted: bool
    stack: ExitStack = field(default_factory=ExitStack)
    """The stack of all that must be closed after the measurement."""

    @property
    def quota(self) -> int:
        """Returns the quota of each key per day: one that is never used up, or one that the first request uses up."""
        return ROOMY if self.admitted else 1


def as_they_are(keys: Sequence[str]) -> Calls:
    """Returns the keys themselves: one call for each key."""
    return keys


def in_batches(keys: Sequence[str]) -> Calls:
    """Divides keys into batches, as gateways would have them."""
    return [keys[start : start + BATCH] for start in range(0, len(keys), BATCH)]


def nothing_to_settle(_keys: Sequence[str]) -> None:
    """Does nothing, as answers are ready at once."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A limiter, or a floor, that is measured."""

    run: Callable[[Calls], object]
    """A function that asks about all keys in a loop."""
    admits: Callable[[str], bool]
    """A function that asks about one key, by which the candidate is checked."""
    arrange: Callable[[Sequence[str]], Calls] = as_they_are
    """A function that makes the calls from keys, before the time is taken."""
    settle: Callable[[Sequence[str]], None] = nothing_to_settle
    """A function that waits for work which goes on after all keys have been asked about once."""


def each(decide: Callable[[str], object]) -> Callable[[Calls], None]:
    """Returns a function that calls `decide` with each of many keys."""

    def run(keys: Calls) -> None:
        for key in keys:
            decide(key)

    return run


def floor(keys: Sequence[str]) -> Callable[[Calls], None]:
    """Returns the floor: the least cost of counting by key, an increment in a dictionary."""
    used = dict.fromkeys(keys, 0)

    def run(keys: Calls) -> None:
        for key in keys:
            used[key] += 1

    return run


def floor_of_new(keys: Calls, used: dict[str, int]) -> None:
    """Returns the floor for new keys: an assignment in a dictionary."""
    for key in keys:
        used[key] = used.get(key, 0) + 1


# -------------------------------------------------------------------- we ourselves


def compiled_unless_asked() -> None:
    """Raises Missing if the compiled kernel was not built: its equivalent in Python would be measured in its place."""
    if not COMPILED and not os.environ.get(PURE):
        raise Missing("the compiled kernel is not built")


def _limiter(
    setting: Setting, limit: Limit | None = None, hub: str = "memory://", interval_s: float = 3600.0
) -> tuple[Agent, RateLimiter]:
    compiled_unless_asked()
    # Exchanges come when there is news to report, and not while the time is taken.
    agent = Agent(
        hub,
        namespace="bench",
        sync_interval=interval_s,
        min_sync_interval=0.005,
        max_keys=2 * setting.keys,
        new_keys_max=100 * setting.keys,
    )
    setting.stack.callback(agent.stop)
    return agent, agent.limit("bench", limit or Limit(setting.quota, DAY_S))


def ours(setting: Setting) -> Candidate:
    """Measures `limiter.allow(key)`."""
    _, limiter = _limiter(setting)
    return Candidate(each(limiter.allow), limiter.allow)


def ours_fixed(setting: Setting) -> Candidate:
    """Measures `limiter.allow(key)` with a fixed window."""
    _, limiter = _limiter(setting, Limit(setting.quota, DAY_S, algorithm="fixed-window"))
    return Candidate(each(limiter.allow), limiter.allow)


def ours_bucket(*, dry: bool) -> Callable[[Setting], Candidate]:
    """Measures `limiter.allow(key)` with a bucket.

    The bucket has a level above zero at each request, or has drained since, as with little traffic.
    """

    def make(setting: Setting) -> Candidate:
        if setting.admitted:
            limit = Limit(ROOMY if dry else 1, 60.0, algorithm="token-bucket", burst=ROOMY_BURST)
        else:
            limit = Limit(1, DAY_S, algorithm="token-bucket", burst=1)
        _, limiter = _limiter(setting, limit)
        return Candidate(each(limiter.allow), limiter.allow)

    return make


def ours_hit(setting: Setting) -> Candidate:
    """Measures `limiter.hit(key)`, which also returns all values that response fields need."""
    _, limiter = _limiter(setting)
    return Candidate(each(limiter.hit), lambda key: limiter.hit(key).allowed)


def ours_many(setting: Setting) -> Candidate:
    """Measures `limiter.allow_many(keys)`."""
    _, limiter = _limiter(setting)
    return Candidate(each(limiter.allow_many), lambda key: limiter.allow_many([key])[0], arrange=in_batches)


def ours_with_a_hub(setting: Setting) -> Candidate:
    """Measures `limiter.allow(key)` with keys that a Redis has answered about."""
    port = setting.stack.enter_context(redis_on_loopback())
    agent, limiter = _limiter(setting, hub=f"redis://127.0.0.1:{port}/0")

    def settle(keys: Sequence[str]) -> None:
        deadline_s = time.monotonic() + HEARD_S_MAX
        while limiter.usage(keys[-1]).staleness > 2 * HEARD_S_MAX or agent.stats().exchanges[0].cells < len(keys):
            if time.monotonic() > deadline_s:
                raise RuntimeError("the hub has not answered about all keys")
            time.sleep(0.01)

    return Candidate(each(limiter.allow), limiter.allow, settle=settle)


def ours_among_others(setting: Setting) -> Candidate:
    """Measures `limiter.allow(key)` while keys are exchanged all the time, as in production."""
    port = setting.stack.enter_context(redis_on_loopback())
    _, limiter = _limiter(setting, hub=f"redis://127.0.0.1:{port}/0", interval_s=INTERVAL_S)

    def settle(keys: Sequence[str]) -> None:
        deadline_s = time.monotonic() + HEARD_S_MAX
        while limiter.usage(keys[-1]).staleness > 2 * HEARD_S_MAX:  # answers follow the order of the keys
            if time.monotonic() > deadline_s:
                raise RuntimeError("the hub has not answered about all keys")
            time.sleep(0.01)
        time.sleep(3 * INTERVAL_S)

    return Candidate(each(limiter.allow), limiter.allow, settle=settle)
