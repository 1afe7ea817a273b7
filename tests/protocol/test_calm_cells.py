"""Goal: a hub that trusts the sums of a calm cell still notices in time what others do without a word about that cell.

Method: two nodes share a key until nothing is new, in both twins of the merge rule; then something happens elsewhere.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
import redis

from reconverge.clock import ManualClock
from reconverge.hub import Hub
from reconverge.hub.registry import HubSettings
from reconverge.hub.report import CellAnswer, Status
from reconverge.testing.claims.scenes.scene import INTERVAL_S, START_S, Scene, Voice, limit
from reconverge_sync.memory import MemoryHub
from reconverge_sync.merge.rule import CALM_INTERVALS, SILENT_INTERVALS, SPEAK_UP_US
from reconverge_sync.redis.hub import RedisHub
from tests.support.servers import RedisServer

SILENT_S = max(SILENT_INTERVALS * INTERVAL_S, SPEAK_UP_US / 1e6 + INTERVAL_S)
SILENT_FOR = round(SILENT_S / INTERVAL_S)
"""How many intervals after its last batch a node counts as silent."""
LEASE_S = SILENT_S + 15
"""Of the other node."""
MINE = limit(overshoot_milli=0)
HUBS = ("memory", "redis")
Opened = Callable[[ManualClock], Hub]


@pytest.fixture(params=HUBS)
def opened(request: pytest.FixtureRequest, redis_server: RedisServer) -> Opened:
    """Makes a hub that goes by a clock."""
    if request.param == "redis":
        return lambda clock: RedisHub(redis_server.url, HubSettings("calm", 5.0), clock=clock)
    return lambda clock: MemoryHub(clock=clock)


class Calm:
    """Two nodes that share a key, after so many exchanges that the hub has nothing to learn any more."""

    def __init__(self, hub: Hub, clock: ManualClock) -> None:
        self.clock = clock
        scene = Scene(hub, clock, join=lambda known: known)
        self.one, self.other = scene.voice(), scene.voice(lease_us=round(LEASE_S * 1e6))

    async def begin(self) -> None:
        """Exchange until the cell is calm and was counted a moment ago."""
        for _ in range(2 * CALM_INTERVALS + 2):
            await self.says(self.other)
            await self.says(self.one)
            self.clock.advance(INTERVAL_S)

    async def says(self, node: Voice) -> CellAnswer:
        """Returns the answer to a node that needs something."""
        return await node.reports(of=MINE, need=30)


@pytest.fixture
async def calm(opened: Opened) -> AsyncIterator[Calm]:
    """Both nodes at such a hub."""
    clock = ManualClock(START_S)
    hub = opened(clock)
    calm = Calm(hub, clock)
    await calm.begin()
    yield calm
    await hub.close()


@pytest.mark.parametrize("intervals", range(1, CALM_INTERVALS))
async def test_whoever_leaves_is_missed_an_interval_later(calm: Calm, intervals: int) -> None:
    """Though its last words were of other keys, and whenever the cell was counted last."""
    before = await calm.says(calm.one)
    for _ in range(intervals):
        await calm.says(calm.one)
        await calm.other.says_hello()
        calm.clock.advance(INTERVAL_S)
    await calm.other.leaves()
    calm.clock.advance(INTERVAL_S)
    after = await calm.says(calm.one)

    assert 2 == before.nodes
    assert 1 == after.nodes


async def test_whoever_falls_silent_is_noticed_within_an_interval(calm: Calm) -> None:
    """After a pause and an interval of its own, or three intervals, what it holds counts as used."""
    held = (await calm.says(calm.other)).allowance
    silent = []
    for _ in range(SILENT_FOR + 1):
        calm.clock.advance(INTERVAL_S)
        silent.append((await calm.says(calm.one)).silent)

    assert held > 0
    assert [0] * SILENT_FOR + [held] == silent


@pytest.mark.parametrize("meanwhile", [True, False])
async def test_whoever_comes_back_too_late_is_given_up(calm: Calm, meanwhile: bool) -> None:
    """Under its old name it is refused, and an interval later nobody is thought to need anything but the other.

    Whether or not that one was there meanwhile, so that the hub could notice before.
    """
    if meanwhile:
        calm.clock.advance(INTERVAL_S)
        await calm.says(calm.one)
    calm.clock.advance(LEASE_S - INTERVAL_S * meanwhile)
    late = await calm.other.exchanges(calm.other.batch())
    calm.clock.advance(INTERVAL_S)
    after = await calm.says(calm.one)

    assert Status.LAPSED is late.status
    assert 1 == after.nodes


async def test_whoever_never_comes_back_is_given_up(calm: Calm) -> None:
    """Though it was while nobody spoke of the cell that its lease ended."""
    calm.clock.advance(LEASE_S)
    await calm.one.says_hello()
    after = await calm.says(calm.one)

    assert 1 == after.nodes


@pytest.mark.parametrize("opened", ["redis"], indirect=True)
async def test_a_calm_cell_is_seldom_counted(calm: Calm, redis_server: RedisServer) -> None:
    """To count it is to read all of its entries and all nodes; these are looked at now and then in any case."""
    with redis.Redis(unix_socket_path=str(redis_server.socket)) as admin:
        admin.config_resetstat()
        for _ in range(6 * CALM_INTERVALS):
            await calm.says(calm.one)
            await calm.says(calm.other)
            calm.clock.advance(INTERVAL_S)
        counted = admin.info("commandstats")["cmdstat_hgetall"]["calls"]

    assert counted < 6 * CALM_INTERVALS
