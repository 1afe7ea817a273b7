"""Runs a scenario: starts all processes, causes the faults at their times, and collects the histories."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import redis

from chaos.bound.following import Followed, Follower, Steps
from chaos.bound.leaders import leaders_recorded
from chaos.bound.scenarios import to_follow
from chaos.deployments.deployment import BROKER
from chaos.faults.fault import FailedOver, MasterLost
from chaos.faults.proxy import ProxyDisobeyed
from chaos.fleet.contestant import history_files
from chaos.fleet.observer import Observer
from chaos.fleet.plan import Plan
from chaos.fleet.watchdog import HANG, innermost_frame
from chaos.judge.history import Life, Part, Sight, View, last_view, read_lives
from chaos.names import LIES, MERGED, OURS, SECRET
from chaos.scenarios import workload
from chaos.scenarios.scenario import Scenario
from chaos.stage import ChaosFailed, Stage
from reconverge.clock import MILLISECOND_NS, NEVER_NS, SECOND_NS
from reconverge.errors import HubUnavailable

LOOK_S: Final = 0.1
"""The seconds between two looks at the hub's data."""
ASK_S: Final = 1.0
ELECTED_S: Final = 10.0
"""The timeout of a question to members, in seconds: they first have to elect one that answers."""
LEARNING_S: Final = 1.2
"""The seconds, beyond the interval, for which a server of unknown past grants strict nodes no new allowances."""
EDGE_NS: Final = 60 * SECOND_NS
"""A time longer than any run of a scenario with long windows."""
AGREE_S: Final = 10.0
"""The longest wait, in seconds, for nodes that do not agree yet; the checker judges whether it was too long."""


@dataclass(slots=True)
class Record:
    """The records of a run."""

    scenario: Scenario
    seed: int
    contestants: tuple[str, ...]
    start_ns: int = 0
    shards: int = 1
    spells: list[tuple[int, int, bool]] = field(default_factory=list)
    """The beginning and the end of each fault, and whether it is shown."""
    parts: list[Part] = field(default_factory=list)
    """The times of faults in a part of the hub."""
    load_end_ns: int = 0
    end_ns: int = 0
    """The moment at which the nodes were ordered to end."""
    lives: list[Life] = field(default_factory=list)
    sights: dict[str, list[Sight]] = field(default_factory=dict)
    finals: dict[str, Sight] = field(default_factory=dict)
    """The hub's data after the end of all nodes."""
    noted: dict[str, int] = field(default_factory=dict)
    """The counts that faults have noted."""
    leaks: list[str] = field(default_factory=list)
    """The files in which the password was found."""
    followed: Followed | None = None
    """How far the model allows the steps of the run, if they were written down."""
    hangs: list[str] = field(default_factory=list)
    """The places at which processes stood still that ended themselves for that reason."""

    @property
    def healed_ns(self) -> int:
        """Returns the moment at which the last fault was over."""
        return max((end_ns for _, end_ns, _ in self.spells), default=self.start_ns)


class Supervisor:
    """Runs one scenario once."""

    def __init__(self, scenario: Scenario, seed: int, contestants: Sequence[str]) -> None:
        self._scenario = scenario
        self.record = Record(scenario, seed, tuple(contestants))
        self.record.sights = {name: [] for name in contestants}
        self._looked_enough = asyncio.Event()
        self._observers: dict[str, Observer] = {}
        self._followed: tuple[str, ...] = ()
        self._taken_over_ns = NEVER_NS
        """The moment at which a master is killed that has a replica."""

    async def run(self) -> Record:
        """Runs the scenario. Raises ChaosFailed if it cannot be carried out."""
        with tempfile.TemporaryDirectory(prefix="reconverge-chaos-", ignore_cleanup_errors=True) as name:
            directory = Path(name)
            try:
                with leaders_recorded(directory) if self._scenario.bound else nullcontext():
                    await self._on_stage(directory)
            except ProxyDisobeyed as error:
                raise ChaosFailed(f"a proxy does not obey: {error}") from error
            self.record.followed = await asyncio.to_thread(self._follow, directory)
            self.record.lives = await asyncio.to_thread(read_lives, history_files(directory))
            self.record.leaks = await asyncio.to_thread(_leaks, directory)
            self.record.hangs = await asyncio.to_thread(_hangs, directory)
        return self.record

    def _follow(self, directory: Path) -> Followed | None:
        scenario = self._scenario
        if not scenario.bound:
            return None
        steps, lies = Steps.read(directory), scenario.ground == LIES or scenario.third_party
        terms = scenario.limit, scenario.policy, self._followed, scenario.cost_max
        return Follower(steps, *terms, lies=lies, taken_over_ns=self._taken_over_ns).follow()

    async def _on_stage(self, directory: Path) -> None:
        async with Stage(self._scenario, directory) as stage:
            try:
                await self._live_through(stage, directory)
            finally:
                await asyncio.gather(*(observer.close() for observer in self._observers.values()))

    async def _live_through(self, stage: Stage, directory: Path) -> None:
        record, scenario = self.record, self._scenario
        record.shards = stage.deployment.shards
        learnt_s = await self._introduce(stage)
        await stage.start_nodes(self._plans(directory))
        await asyncio.gather(*(observer.step_back() for observer in self._observers.values()))
        record.start_ns = await self._common_start(learnt_s)
        for node in stage.nodes:
            node.go(record.start_ns)
        looking = asyncio.create_task(self._look_again_and_again(stage))
        try:
            await self._carry_out(stage)
            record.load_end_ns = record.start_ns + round(scenario.load_s * SECOND_NS)
            await _sleep_until(record.load_end_ns)
            await stage.await_the_late()
            stage.nodes[0].tell("observe", amount=0)
            await self._await_agreement(directory)
            if scenario.deployment == BROKER:
                # The last node has to hand over to the observer, and so must have heard of it lately.
                record.end_ns = time.monotonic_ns()
                await stage.end_nodes()
        finally:
            # Not cancelled: the task that waits for the server may ignore that.
            self._looked_enough.set()
            await looking
        record.end_ns = record.end_ns or time.monotonic_ns()
        record.noted = stage.noted
        if OURS in self._observers:
            record.noted["rejected by observer"] = self._observers[OURS].rejects
        await stage.end_nodes()
        for name in record.contestants:
            record.finals[name] = await self._last_look(stage, name)

    # ---------------------------------------------------------------- before

    async def _introduce(self, stage: Stage) -> float:
        """Creates the hub's data before the nodes come.

        Returns the time at which the hub knows that the nodes are new.
        """
        scenario = self._scenario
        by_members = scenario.deployment == BROKER
        for name in (OURS, MERGED):
            if name in self.record.contestants:
                self._observers[name] = Observer(
                    lambda: stage.deployment.look_url,
                    name,
                    timeout_s=ELECTED_S if by_members else ASK_S,
                    interval_s=scenario.interval_s,
                    by_members=by_members,
                )
        try:
            await asyncio.gather(*(observer.introduce() for observer in self._observers.values()))
        except HubUnavailable as error:
            raise ChaosFailed(f"the hub does not begin: {error}") from error
        return time.monotonic() + LEARNING_S + self._scenario.interval_s

    def _plans(self, directory: Path) -> list[Plan]:
        scenario = self._scenario
        drawn = workload.draw(scenario, self.record.seed)
        self._followed = to_follow(scenario, drawn, self.record.shards) if scenario.bound else ()
        return [
            Plan(
                node=node,
                url="",
                rivals_url="",
                shards=1,
                directory=str(directory),
                contestants=self.record.contestants,
                program=scenario.program,
                limit=scenario.limit,
                policy=scenario.policy_name,
                cold_allowance=scenario.cold_allowance,
                interval_s=scenario.interval_s,
                timeout_s=scenario.timeout_s,
                lease_s=scenario.lease_s,
                silence_s=scenario.silence_s,
                keys_max=scenario.keys_max,
                flooded=scenario.flooded,
                third_party=scenario.third_party,
                slots=scenario.slots,
                slots_lease_s=scenario.slots_lease_s,
                alone=scenario.nodes == 1,
                seed=self.record.seed,
                obeys=scenario.obeys,
                agents=scenario.agents,
                followed=self._followed,
                load_ns=round(scenario.load_s * SECOND_NS),
                requests=requests,
            )
            for node, requests in enumerate(drawn)
        ]

    async def _common_start(self, learnt_s: float) -> int:
        """Returns the moment at which a window begins by the machine's clock."""
        await asyncio.sleep(max(0.0, learnt_s - time.monotonic()))
        window_ns = self._scenario.limit.window_ns
        left_ns = -time.time_ns() % window_ns
        if window_ns > SECOND_NS and left_ns < EDGE_NS:
            await asyncio.sleep(left_ns / SECOND_NS)  # else a long window would end in the middle of the run
        ahead_ns = 50 * MILLISECOND_NS
        wait_ns = -(time.time_ns() + ahead_ns) % min(window_ns, SECOND_NS)
        return time.monotonic_ns() + ahead_ns + wait_ns

    # ---------------------------------------------------------------- meanwhile

    async def _carry_out(self, stage: Stage) -> None:
        """Begins and ends the faults, in the order of their moments."""
        start_ns = self.record.start_ns
        events = [(spell.start_s, 1, number) for number, spell in enumerate(self._scenario.spells)]
        events += [(spell.end_s, 0, number) for number, spell in enumerate(self._scenario.spells)]
        begun_ns: dict[int, int] = {}
        for moment_s, begins, number in sorted(events, key=lambda event: (event[0], event[2], -event[1])):
            await _sleep_until(start_ns + round(moment_s * SECOND_NS))
            spell = self._scenario.spells[number]
            now_ns = time.monotonic_ns()
            if begins:
                begun_ns[number] = now_ns
                if isinstance(spell.fault, FailedOver | MasterLost):
                    self._taken_over_ns = now_ns
                await spell.fault.begin(stage)
            else:
                await spell.fault.end(stage)
                self.record.spells.append((begun_ns[number], time.monotonic_ns(), spell.shown))
                if spell.shards is not None:
                    part = Part(spell.name, begun_ns[number], time.monotonic_ns(), spell.shards)
                    self.record.parts.append(part)

    async def _look_again_and_again(self, stage: Stage) -> None:
        while not self._looked_enough.is_set():
            for name in self.record.contestants:
                sight = await self._look(stage, name)
                if sight is not None:
                    self.record.sights[name].append(sight)
            await asyncio.sleep(LOOK_S)

    async def _last_look(self, stage: Stage, name: str) -> Sight:
        """Returns the hub's data at the end. Raises ChaosFailed if the hub does not answer."""
        deadline_s = time.monotonic() + ELECTED_S
        while (sight := await self._look(stage, name)) is None:
            if time.monotonic() > deadline_s:
                raise ChaosFailed(f"nobody can say what the hub knows of {name}")
            await asyncio.sleep(LOOK_S)
        return sight

    async def _look(self, stage: Stage, name: str) -> Sight | None:
        """Returns the hub's data on a contestant; None if it does not answer."""
        before_ns = time.monotonic_ns()
        try:
            if name in self._observers:
                async with asyncio.timeout(ASK_S if stage.deployment_kind == BROKER else None):
                    facts: tuple[int, ...] = await self._observers[name].look()
            else:
                facts = (await asyncio.to_thread(stage.deployment.reported, name),)
        except (HubUnavailable, redis.RedisError, OSError):
            return None
        return Sight(before_ns, time.monotonic_ns(), *facts)

    async def _await_agreement(self, directory: Path) -> None:
        """Waits until all of our nodes agree, or, if there are none of ours, for as long as that may take."""
        patience_s = self._scenario.reconverges_in_s
        if OURS not in self.record.contestants:
            await asyncio.sleep(patience_s)
            return
        since_ns = max(time.monotonic_ns(), self.record.healed_ns)
        if self.record.shards > 1:
            # They agree on one key's total; other shards may have had more to recover from.
            since_ns += round(patience_s * SECOND_NS)
        deadline_s = time.monotonic() + patience_s + AGREE_S
        while time.monotonic() < deadline_s:
            await asyncio.sleep(LOOK_S)
            views = await asyncio.to_thread(_last_views, directory, self.record.load_end_ns)
            sights = [sight for sight in self.record.sights[OURS][-1:] if sight.before_ns > since_ns]
            known = {sight.census for sight in sights}
            if any(sight.total != sight.census for sight in sights) and time.monotonic() < deadline_s - AGREE_S:
                continue  # the other limit, about which nodes are not asked, has yet to be reported
            if len(views) >= self._scenario.nodes and {view.total for view in views} == known:
                await asyncio.sleep(3 * LOOK_S + 2 * self._scenario.interval_s)
                return


def _last_views(directory: Path, after_ns: int) -> list[View]:
    """Returns the last views of our agent that all living processes have recorded lately."""
    views = [last_view(path, OURS) for path in history_files(directory)]
    return [view for view in views if view is not None and view.t_ns > after_ns]


def _leaks(directory: Path) -> list[str]:
    """Returns the names of the files in which the password was found."""
    return [path.name for path in sorted(directory.iterdir()) if SECRET in path.read_text(errors="replace")]


def _hangs(directory: Path) -> list[str]:
    """Returns, for each process that stood still, the innermost frame of its main thread."""
    words = (path.read_text(errors="replace") for path in sorted(directory.glob(f"{HANG}-*")))
    return [innermost_frame(traceback) for traceback in words if traceback]


async def _sleep_until(moment_ns: int) -> None:
    await asyncio.sleep(max(0.0, (moment_ns - time.monotonic_ns()) / SECOND_NS))


def run(scenario: Scenario, seed: int, contestants: Sequence[str]) -> Record:
    """Runs a scenario once, with these contestants side by side. Raises ChaosFailed."""
    return asyncio.run(Supervisor(scenario, seed, contestants).run())
