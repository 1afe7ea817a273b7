"""The interface of a limiter in the chaos tests, and our own agent behind it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack, contextmanager
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, Final, Protocol

from chaos.bound.leaders import leaders_recorded
from chaos.bound.recording import TOGETHER, StepRecorder
from chaos.faults.nonsense import ThirdPartyHub
from chaos.fleet.plan import Plan
from chaos.judge.history import FAIL, OK, UNKNOWN, Lease, Recorder
from chaos.names import CENSUS_NAME, FLOODED_NAME, LIMIT_NAME, MERGED, SETTINGS_SECRET, SLOTS_KEY, SLOTS_NAME
from reconverge import Agent, RateLimiter
from reconverge.clock import Clock, SystemClock
from reconverge.errors import HubUnavailable
from reconverge.hub import Hub, SettingsStore
from reconverge.hub.port import Blocking
from reconverge.hub.registry import HubSettings, open_hub
from reconverge.hub.report import Answer, Batch, Totals
from reconverge.kernel import Cell, Reentry, Verdict
from reconverge.limit import FIXED_WINDOW, Limit

CENSUS_KEY: Final = "all"
CENSUS: Final = Limit(10**12, 30 * 86_400.0, algorithm=FIXED_WINDOW)
"""A limit so large that it is calm at any load, and with a window so long that no run falls on its edge."""
_numbers = count(1)
_for_good = ExitStack()


class Contestant(Protocol):
    """A limiter that decides the requests of a scenario: our agent, or a rival."""

    name: str

    def prepare(self, keys: Iterable[str]) -> None:
        """Begins, and learns the state of these keys."""
        ...

    @property
    def ready(self) -> bool:
        """Returns whether the preparation has ended."""
        ...

    def decide(self, key: str, cost: int) -> Verdict:
        """Admits or refuses a request from memory."""
        ...

    async def ask(self, key: str, cost: int) -> Verdict:
        """Admits or refuses a request; in doubt, asks the hub first. May wait."""
        ...

    def count(self, cost: int) -> None:
        """Counts an admitted cost, if the contestant has a second limit for that."""
        ...

    def knock(self, limit: int, key: str) -> bool:
        """Decides a stranger's request, under the flooded limit with the number `limit`."""
        ...

    def lie(self, *, lies: bool) -> None:
        """Sets whether answers are nonsense from now on, if the hub is a third-party object."""
        ...

    def health(self) -> str:
        """Returns the state that the contestant reports of itself; empty if it reports none."""
        ...

    def view(self) -> int:
        """Returns the cost that the whole fleet has admitted, as far as this node knows."""
        ...

    def used(self, key: str) -> tuple[int, int] | None:
        """Returns the number of the window, and the cost that all nodes have used of it, as far as this node knows.

        None if the node is full of keys, and has no room for this one just now.
        """
        ...

    def staleness_s(self) -> float:
        """Returns the age of what the contestant knows, in seconds."""
        ...

    def ages_s(self) -> list[float]:
        """Returns the age of what the contestant knows of each shard, in seconds."""
        ...

    def facts(self) -> dict[str, Any]:
        """Returns the figures of the end."""
        ...


class MovedClock:
    """The machine's clocks, with a wall clock that can be made to jump."""

    monotonic_ns = staticmethod(SystemClock.monotonic_ns)

    def __init__(self) -> None:
        self.ahead_ns = 0

    def wall_ns(self) -> int:
        """Returns the machine's wall time, moved by `ahead_ns`."""
        return SystemClock.wall_ns() + self.ahead_ns


class Recorded:
    """A hub whose exchanges are recorded, at their beginning and at their end."""

    def __init__(self, hub: Hub, recorder: Recorder, who: str, agent: int) -> None:
        """`agent` is the number of its agent in this process."""
        self._hub = hub
        self._recorder = recorder
        self._who = who
        self._agent = agent

    @property
    def shards(self) -> int:
        return self._hub.shards

    @property
    def at_work(self) -> bool:
        """Returns whether the hub has tasks of its own; see `reconverge.hub.Working`."""
        return bool(getattr(self._hub, "at_work", False))

    async def exchange(self, batch: Batch) -> Answer:
        with self._written_down(batch):
            return await self._hub.exchange(batch)

    def ready_to_block(self) -> bool:
        return isinstance(self._hub, Blocking) and self._hub.ready_to_block()

    def exchange_blocking(self, batch: Batch, turn: Callable[[], None]) -> Answer:
        assert isinstance(self._hub, Blocking)
        with self._written_down(batch):
            return self._hub.exchange_blocking(batch, turn)

    @contextmanager
    def _written_down(self, batch: Batch) -> Iterator[None]:
        """Writes down the beginning, the end and the failure of one exchange."""
        said = {limit.name: limit.charged for limit in batch.limits}
        charged, census = said.get(LIMIT_NAME), said.get(CENSUS_NAME)
        lease = self._agent, batch.shard
        number = self._recorder.sent(self._who, batch.account, charged, census, lease=lease)
        try:
            yield
        except HubUnavailable as error:
            self._recorder.heard(self._who, number, FAIL if error.applied is False else UNKNOWN, error.kind)
            raise
        except asyncio.CancelledError:
            self._recorder.heard(self._who, number, UNKNOWN, "timeout")
            raise
        except Exception as error:
            self._recorder.heard(self._who, number, UNKNOWN, f"bug:{type(error).__name__}")
            raise
        self._recorder.heard(self._who, number, OK)

    async def totals(self) -> dict[str, Totals]:
        return await self._hub.totals()

    async def close(self) -> None:
        await self._hub.close()

    def __repr__(self) -> str:
        return f"Recorded({self._hub!r})"


class RecordedSettingsStore(Recorded):
    """A hub whose exchanges are recorded, and at which settings can be published."""

    def __init__(self, hub: Hub, recorder: Recorder, who: str, agent: int) -> None:
        super().__init__(hub, recorder, who, agent)
        assert isinstance(hub, SettingsStore)
        self._store = hub

    async def post(self, payload: bytes, *, keep_s: float) -> None:
        await self._store.post(payload, keep_s=keep_s)

    async def read(self, *, bytes_max: int) -> bytes | None:
        return await self._store.read(bytes_max=bytes_max)


class Ours:
    """An agent as in applications, on a hub whose exchanges are recorded."""

    def __init__(self, name: str, plan: Plan, recorder: Recorder, clock: Clock) -> None:
        self.name = name
        self._number = next(_numbers)
        hub = open_hub(plan.url, HubSettings(name, plan.timeout_s))
        self._third_party = ThirdPartyHub(hub, Random(f"nonsense {plan.seed}")) if plan.third_party else None
        hub = self._third_party or hub
        rejects: Counter[str] | None = getattr(hub, "rejects", None)
        self._rejects = Counter[str]() if rejects is None else rejects
        self.agent = Agent(
            (RecordedSettingsStore if plan.obeys else Recorded)(hub, recorder, name, self._number),
            namespace=name,
            settings_secret=SETTINGS_SECRET if plan.obeys else None,
            sync_interval=plan.interval_s,
            exchange_timeout=plan.timeout_s,
            lease_ttl=plan.lease_s,
            max_silence=plan.silence_s,
            max_keys=plan.keys_max,
            clock=clock,
        )
        policy = "naive" if name == MERGED else plan.policy
        self._clock = clock
        self._login = self.agent.limit(LIMIT_NAME, plan.limit, policy=policy, cold_allowance=plan.cold_allowance)
        self._census = self.agent.limit(CENSUS_NAME, CENSUS, policy="available")
        self._flooded = [
            self.agent.limit(f"{FLOODED_NAME}-{number}", limit) for number, limit in enumerate(plan.flooded)
        ]
        self._slots = None
        if plan.slots:
            slots_policy = "naive" if name == MERGED else "strict"
            self._slots = self.agent.concurrency(SLOTS_NAME, plan.slots, lease=plan.slots_lease_s, policy=slots_policy)
        self._keys_max = plan.keys_max
        self._keys: tuple[str, ...] = ()
        self._steps = StepRecorder(Path(plan.directory), plan.node, self._number, LIMIT_NAME, plan.followed)
        self._steps.attach(self.agent)
        if plan.followed and plan.url.startswith("mqtt"):
            _for_good.enter_context(leaders_recorded(Path(plan.directory)))

    def prepare(self, keys: Iterable[str]) -> None:
        self._keys = tuple(keys)
        self._login.warm(self._keys)
        self._census.warm([CENSUS_KEY])
        self.agent.start()

    @property
    def ready(self) -> bool:
        return self._knows(self._login, self._keys) and self._knows(self._census, (CENSUS_KEY,))

    @staticmethod
    def _knows(limiter: RateLimiter, keys: Sequence[str]) -> bool:
        cells = limiter.control.table.cells
        unknown = [key for key in keys if key not in cells or not cells[key].heard]
        limiter.warm(unknown)  # an unused key is forgotten if the hub does not answer for long
        return not unknown

    def decide(self, key: str, cost: int) -> Verdict:
        """Decides a request. It refuses within another decision about the same limit, as `allow` does."""
        with self._steps.together:
            now_ns = self._clock.monotonic_ns()
            self._steps.deciding += 1
            try:
                verdict = self._login.control.table.decide(key, cost, now_ns)
                if verdict.allowed:
                    self._steps.admitted(key, cost, now_ns)
            except Reentry:
                return Verdict(allowed=False, epoch=0, hub_ns=0, known=False)
            except BaseException:
                self._steps.interrupted(key, now_ns)
                raise
            finally:
                self._steps.deciding -= 1
            return verdict

    @property
    def lock(self) -> Any:
        """Returns the lock under which the steps of all agents of this process are made."""
        return TOGETHER.lock

    @property
    def writes(self) -> bool:
        """Returns whether a step is being written down just now, which no signal handler may disturb."""
        return self._steps.writing

    async def ask(self, key: str, cost: int) -> Verdict:
        """Decides a request, and asks in doubt. The agent must live in the running loop."""
        allowed = (await self._login.ask(key, cost)).allowed
        if allowed:
            self._steps.admitted(key, cost, self._clock.monotonic_ns())
        table = self._login.control.table
        # The cell is as the decision has left it: nothing else has run in this loop since.
        cell = table.cells[key]
        assert isinstance(cell, Cell)
        return table.verdict(cell, allowed, self._clock.monotonic_ns())

    def count(self, cost: int) -> None:
        assert self._census.allow(CENSUS_KEY, cost)

    def knock(self, limit: int, key: str) -> bool:
        return self._flooded[limit].allow(key)

    @property
    def slots_lease(self) -> Lease:
        assert self._slots is not None
        return self._number, self._slots.control.table.shard_of(SLOTS_KEY).index

    def slot(self, timeout_s: float) -> AbstractContextManager[object]:
        assert self._slots is not None
        return self._slots.slot(SLOTS_KEY, timeout=timeout_s)

    def slot_in_loop(self, timeout_s: float) -> AbstractAsyncContextManager[object]:
        assert self._slots is not None
        return self._slots.slot(SLOTS_KEY, timeout=timeout_s)

    def lie(self, *, lies: bool) -> None:
        assert self._third_party is not None
        self._third_party.lies = lies

    def health(self) -> str:
        return self.agent.health().state

    def view(self) -> int:
        return self._census.usage(CENSUS_KEY).total

    def used(self, key: str) -> tuple[int, int] | None:
        """Returns the window and its use.

        Both numbers are of one window, though other nodes may open the next one meanwhile.
        """
        table = self._login.control.table
        while True:
            epoch = table.observe(key, self._clock.monotonic_ns()).epoch
            total = self._login.usage(key).total
            cell = table.cells.get(key)
            if cell is None:
                return None
            if cell.epoch == epoch:  # the total, read in between, is of this window, as windows follow each other
                return epoch, total

    def staleness_s(self) -> float:
        return max(self.ages_s())

    def ages_s(self) -> list[float]:
        return [exchanges.staleness for exchanges in self.agent.stats().exchanges]

    def facts(self) -> dict[str, Any]:
        stats = self.agent.stats()
        failures: Counter[str] = Counter()
        for exchanges in stats.exchanges:
            failures.update(exchanges.failures)
        return {
            "keys": stats.keys,
            "keys_max": self._keys_max,
            "admitted": stats.limits[LIMIT_NAME].admitted,
            "overflowed": stats.limits[LIMIT_NAME].overflowed,
            "slots_in_use": stats.limits[SLOTS_NAME].in_use if self._slots is not None else 0,
            "bugs": stats.bugs,
            "lies": 0 if self._third_party is None else self._third_party.lied,
            "failures": dict(failures),
            "rebirths": sum(exchanges.rebirths for exchanges in stats.exchanges),
            "lapses": sum(exchanges.lapses for exchanges in stats.exchanges),
            "rejects": dict(self._rejects),
            "obeyed": 0 if stats.orders is None else stats.orders.version,
            "accepted": 0 if stats.orders is None else stats.orders.accepted,
        }


def history_files(directory: Path) -> list[Path]:
    """Returns the files with all that was recorded."""
    return sorted(directory.glob("node-*.jsonl"))
