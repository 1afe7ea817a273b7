"""Compares an agent's counters once a second, and calls its hooks with the changes."""

# Decisions do not call hooks: a call for each decision would put foreign code on the hot path, or a queue that has to
# be bounded, and filled by compiled code. Instead a thread, which exists only while there are hooks, compares the
# counters with their values at its last look. It takes the keys of events from the reports and answers of exchanges. So
# decisions are not slowed down; an event is a number with some keys, and comes up to PACE_S late. Each node that
# reports a key counts each time that the key comes near its limit, so a sum over nodes contains the key several times.

from __future__ import annotations

import inspect
import logging
import threading
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

from reconverge.arguments import takes
from reconverge.errors import InvalidSetting, nearest
from reconverge.exchange.answer_stats import KEYS_REPORTED_MAX, AnswerStats
from reconverge.hooks import (
    ExchangeFailed,
    HealthChanged,
    Hooks,
    Look,
    NearLimit,
    Refused,
    SettingsChanged,
    SettingsRejected,
    SilentHooks,
)
from reconverge.runtime.locks import new_lock
from reconverge.stats import READY, STARTING, STATES, AgentStats, Health

logger = logging.getLogger("reconverge")

PACE_S: Final = 1.0
"""The seconds between two comparisons of the agent's counters."""


KNOWN: Final = tuple(name for name in vars(Hooks) if not name.startswith("_"))
"""The names of all methods of `Hooks`, one for each kind of event."""
_INHERITED: Final = frozenset(getattr(cls, name) for cls in (Hooks, SilentHooks) for name in KNOWN) | {None}
ALIKE_MIN: Final = 0.85
"""The similarity, by `difflib` from 0 to 1, from which on a method's name counts as a misspelt event."""


def _check_names(hooks: object) -> None:
    """Raises InvalidSetting for a method whose name is almost an event's, if `hooks` has no method for that event."""
    for cls in type(hooks).__mro__:
        if cls.__module__ == Hooks.__module__:
            continue
        for name in vars(cls):
            meant = name.removeprefix("on_")
            found = meant if meant in KNOWN else nearest(meant, KNOWN, ALIKE_MIN)
            if found is None or name in KNOWN or getattr(type(hooks), found, None) not in _INHERITED:
                continue
            problem = f"is never called, as no event has this name; did you mean {found!r}?"
            raise InvalidSetting("hooks", f"{cls.__name__}.{name}", problem)


def _check_methods(hooks: object) -> None:
    """Raises InvalidSetting if `hooks` lacks an event's method, or has one that cannot be called with an event."""
    lacking = [name for name in KNOWN if not callable(getattr(hooks, name, None))]
    if lacking:
        problem = f"has no method {lacking[0]}(); pass an object of a class that inherits SilentHooks"
        raise InvalidSetting("hooks", hooks, problem)
    for name in KNOWN:
        if inspect.iscoroutinefunction(getattr(hooks, name)):
            problem = (
                "is a coroutine function, which nothing awaits, as hooks are called on a thread; write a plain one"
            )
            advice = "which may call asyncio.run_coroutine_threadsafe(coroutine, loop)"
            raise InvalidSetting("hooks", f"{type(hooks).__name__}.{name}", f"{problem}, {advice}")
        if not takes(getattr(hooks, name), 1):
            problem = f"is called with the event, and takes others; write def {name}(self, event)"
            raise InvalidSetting("hooks", f"{type(hooks).__name__}.{name}", problem)


class WatchedAgent(Protocol):
    """The methods of an agent that the dispatcher of hooks uses."""

    @property
    def watch(self) -> AnswerStats:
        """Returns statistics of the hub's answers, with the keys that were refused or have nearly used a quota."""
        ...

    def stats(self) -> AgentStats: ...

    def health(self) -> Health: ...


class HookDispatcher:
    """Compares an agent's counters on a thread and calls its hooks with the changes; has no thread without hooks."""

    def __init__(self, agent: WatchedAgent) -> None:
        self._agent = weakref.ref(agent)  # the dispatcher's thread must not keep an agent that is otherwise unused
        self._hooks: tuple[Hooks, ...] = ()
        self.failures = 0
        """The number of exceptions in hooks and in comparisons of the counters."""
        self._lock = new_lock()  # a hook may ask for a look
        self.start_over()

    def start_over(self) -> None:
        """Forgets the parent process's thread and counts; if there are hooks, starts a thread. For a forked child."""
        self._end = threading.Event()  # fork: this makes another one for the child
        self._thread: threading.Thread | None = None
        self._seen: Counter[tuple[str, str]] = Counter()
        self._refused, self._near = _Keys(), _Keys()
        self._state: str = STARTING
        self._version = 0
        """The version of the published settings that were in force at the last look."""
        if self._hooks:
            self._begin()

    def add(self, hooks: Hooks) -> None:
        """Calls methods of `hooks` for events from now on. Raises InvalidSetting for an object that is no hooks."""
        if isinstance(hooks, type):
            raise InvalidSetting("hooks", hooks, f"is a class; pass an object of it: add_hooks({hooks.__name__}())")
        _check_names(hooks)
        _check_methods(hooks)
        if not self._hooks:
            self._begin()
        self._hooks = (*self._hooks, hooks)

    def remove(self, hooks: Hooks) -> None:
        """Stops calling the methods of `hooks` for events."""
        self._hooks = tuple(each for each in self._hooks if each is not hooks)
        agent = self._agent()
        if not self._hooks and agent is not None:
            agent.watch.has_hooks = False
            self._end.set()

    def stop(self) -> None:
        """Reports to the hooks all events that have happened until now, and ends the thread."""
        if self._hooks and self._lock.acquire(
            timeout=PACE_S
        ):  # a hook that hangs must not keep the process from ending
            try:
                self.look()
            finally:
                self._lock.release()
        self._end.set()

    def look(self) -> None:
        """Reports to the hooks all changes of the counters since the last look. Raises nothing."""
        agent = self._agent()
        if agent is None:
            return
        with self._lock:
            stats, health, watch = agent.stats(), agent.health(), agent.watch
            refused, near = self._refused, self._near
            refused.add(watch.refused_keys)
            near.add(watch.near_keys)
            for name, limit in stats.limits.items():
                if count := self._new("refused", name, limit.refused):
                    self._tell("refused", Refused(name, count, refused.of(name)))
                if count := self._new("would_refuse", name, limit.would_refuse):
                    self._tell("would_have_refused", Refused(name, count, refused.of(name)))
                if count := self._new("near", name, limit.near):
                    self._tell("near_limit", NearLimit(name, count, near.of(name)))
            failures: Counter[str] = Counter()
            for shard in stats.exchanges:
                failures.update(shard.failures)
            for kind, total in failures.items():
                if count := self._new("failure", kind, total):
                    self._tell("exchange_failed", ExchangeFailed(kind, count))
            self._log_settings(stats)
            self._log_health(health)
            self._tell("looked", Look(stats, health, tuple(_taken(watch.recent))))

    # ------------------------------------------------------------ inside

    def _begin(self) -> None:
        agent = self._agent()
        if agent is None:
            return
        agent.watch.has_hooks = True
        self._end = threading.Event()  # fork: likewise
        self._state = agent.health().state
        stats = agent.stats()
        for name, limit in stats.limits.items():
            for what, total in (("refused", limit.refused), ("would_refuse", limit.would_refuse), ("near", limit.near)):
                self._new(what, name, total)
        for shard in stats.exchanges:
            for kind, total in shard.failures.items():
                self._seen["failure", kind] += total
        if stats.orders is not None:
            self._version = stats.orders.version
            for reason, total in stats.orders.rejected.items():
                self._new("rejected", reason, total)
        self._thread = threading.Thread(
            target=_keep_looking, args=(weakref.ref(self), self._end), name="reconverge-dispatcher", daemon=True
        )
        self._thread.start()

    def _new(self, what: str, name: str, total: int) -> int:
        """Returns by how much a counter has risen since this method was last called for it, and stores `total`.

        `total` is the counter's present value, `what` the kind of event that it counts, and `name` the limit or the
        reason.
        """
        risen = total - self._seen[what, name]
        self._seen[what, name] = total
        return max(0, risen)

    def _log_settings(self, stats: AgentStats) -> None:
        published = stats.orders
        if published is None:
            return
        before, self._version = self._version, published.version
        if published.version != before:
            changed = SettingsChanged(published.version, before, published.capped, tuple(published.unfit))
            self._tell("settings_changed", changed)
        for reason, total in published.rejected.items():
            if count := self._new("rejected", reason, total):
                self._tell("settings_rejected", SettingsRejected(reason, count))

    def _log_health(self, health: Health) -> None:
        if health.state == STARTING:
            return  # after an orderly stop, or before the first answer: neither is an outage
        before, self._state = self._state, health.state
        if health.state == before:
            return
        better = STATES.index(health.state) < STATES.index(before)
        if better and before == STARTING and health.state == READY:
            return  # that is how it begins
        self._tell("recovered" if better else "degraded", HealthChanged(health.state, before, health.grounds))

    def _tell(self, what: str, event: object) -> None:
        for hooks in self._hooks:
            try:
                hook: Callable[[object], None] = getattr(hooks, what)
                hook(event)
            except Exception:
                self.failures += 1
                if self.failures == 1:
                    logger.exception(
                        "reconverge: the hook %s of %s failed; later failures are only counted",
                        what,
                        type(hooks).__name__,
                    )


def _taken(queue: deque[Any]) -> Iterator[Any]:
    """Yields and removes the present entries of a queue that other threads fill meanwhile; later entries stay."""
    for _ in range(len(queue)):
        yield queue.popleft()  # only this thread takes anything out


class _Keys:
    """By limit, the keys of events of one kind, such as refusals, until the hooks are called with them."""

    def __init__(self) -> None:
        self._keys: dict[str, dict[str, None]] = {}

    def add(self, pairs: deque[tuple[str, str]]) -> None:
        """Takes all pairs (limit, key) out of a queue. Stores each key once, and only the last few keys of a limit."""
        for limit, key in _taken(pairs):
            keys = self._keys.setdefault(limit, {})
            keys.pop(key, None)
            keys[key] = None
            if len(keys) > KEYS_REPORTED_MAX:
                del keys[next(iter(keys))]

    def of(self, limit: str) -> tuple[str, ...]:
        """Removes the keys of a limit, which are about to be reported, and returns them."""
        return tuple(self._keys.pop(limit, ()))


def _keep_looking(reference: weakref.ref[HookDispatcher], end: threading.Event) -> None:
    """Calls `HookDispatcher.look` every PACE_S seconds, until `end` is set or the dispatcher was garbage-collected.

    This is the function of the dispatcher's thread.
    """
    while not end.wait(PACE_S):
        dispatcher = reference()
        if dispatcher is None:
            return
        try:
            dispatcher.look()
        except Exception:
            dispatcher.failures += 1
            if dispatcher.failures == 1:
                logger.exception("reconverge: reading the counters for hooks failed; the next attempt follows")
        del dispatcher
