"""Goal: nodes of this version and of the one before meet on one hub, and neither breaks a bound nor cuts the other off.

Method: the script of the version before, as it was released, and this one's take turns on the same data of one Redis;
and what members write to each other by way of a broker is read as the version before reads it.
"""

from __future__ import annotations

import asyncio
import struct
from hashlib import sha1
from pathlib import Path
from random import Random

import msgpack
import pytest

from reconverge.clock import SECOND_NS, Clock, ManualClock
from reconverge.errors import HubUnavailable
from reconverge.hub import Hub
from reconverge.hub.json_codec import read_limit
from reconverge.hub.registry import HubSettings
from reconverge.hub.report import Batch, CellReport, LimitReport, heard_limit, told_limit
from reconverge.limit import FIXED_WINDOW, SLIDING_LOG, SLIDING_WINDOW, TOKEN_BUCKET, Limit
from reconverge.policies import STRICT, Policy, choose
from reconverge.testing.claims.fleet import INTERVAL_NS, KEYS, LEASE_NS, Fleet, Member
from reconverge_sync.mqtt.messages import read_batch, write_batch
from reconverge_sync.redis.hub import RedisHub
from reconverge_sync.redis.resp import bulks, packed
from tests.support.servers import RedisServer

FORMER: bytes = (Path(__file__).parent / "former_exchange.lua").read_bytes()
"""The script of the version before this one, byte by byte."""
START_S = 1_750_000_000.0
OWN_LEASE_NS = 3 * SECOND_NS
STEPS = 250


class FormerHub(RedisHub):
    """A Redis as nodes of the version before speak to it."""

    async def _run(self, shard: int, arguments: int, *parts: bytes) -> object:
        """See `RedisHub`; with the script of that version."""
        by_sha = bulks((b"EVALSHA", sha1(FORMER, usedforsecurity=False).hexdigest().encode()))
        try:
            return await self._call("EVALSHA", packed(3 + arguments, by_sha, *parts), shard=shard)
        except HubUnavailable:
            by_text = bulks((b"EVAL", FORMER))
            return await self._call("EVAL", packed(3 + arguments, by_text, *parts), shard=shard)


class MixedFleet(Fleet):
    """A fleet of which the nodes of this version ask in doubt, and have a lease on the limit that is their own."""

    def _member(self, hub: Hub) -> Member:
        member = super()._member(hub)
        if not isinstance(hub, FormerHub):
            member._table.take_lease(OWN_LEASE_NS)
            member.asks = True
        return member


class Meeting:
    """Nodes of both versions on one Redis."""

    def __init__(self, server: RedisServer, limit: Limit, policy: Policy, seed: int) -> None:
        self.clock: ManualClock = ManualClock(START_S)
        self._server = server
        kinds: list[type[RedisHub]] = [FormerHub, RedisHub, FormerHub, RedisHub]
        self.hubs: list[Hub] = [self._hub(kind, self.clock) for kind in kinds]
        self.policy = policy
        self.fleet = MixedFleet(self.hubs, self.clock, limit=limit, policy=policy, random=Random(seed))

    def _hub(self, kind: type[RedisHub], clock: Clock) -> Hub:
        return kind(self._server.url, HubSettings("mixed", 5.0), clock=clock, certainly_new=lambda: True)

    async def lives(self, steps: int) -> tuple[float, int, int]:
        """Let things happen. Returns the largest excess, how often a hub was new to a node, and what was admitted."""
        excess, nodes = 0.0, []
        for member in self.fleet.members:
            await member.exchanges()
        for _ in range(steps):
            await self.fleet.does_something(crashes=True)
            bound = self.policy.bound(self.fleet.capacity, nodes=self.fleet.members_ever, cost_max=5)
            excess = max(excess, *(self.fleet.truth[key].excess() - bound for key in KEYS))
            nodes = self.fleet.members
        rebirths = sum(
            syncer.stats(self.clock.monotonic_ns()).rebirths for member in nodes for syncer in member._syncers
        )
        for hub in self.hubs:
            await hub.close()
        return excess, rebirths, sum(member.charged for member in nodes)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("policy", [STRICT, choose("balanced", cold_allowance=0.0)], ids=lambda policy: policy.name)
@pytest.mark.parametrize("algorithm", [FIXED_WINDOW, SLIDING_WINDOW, TOKEN_BUCKET, SLIDING_LOG])
def test_both_versions_meet_on_one_redis(redis_server: RedisServer, algorithm: str, policy: Policy, seed: int) -> None:
    """Every batch of either is merged, the data stay what they are, and the bound holds, whatever is lost or late."""
    meeting = Meeting(redis_server, Limit(100, 1.0, algorithm=algorithm), policy, seed)

    excess, rebirths, admitted = asyncio.run(meeting.lives(STEPS))

    assert 0 >= excess
    assert 0 == rebirths
    assert admitted > 0


@pytest.mark.parametrize("algorithm", [FIXED_WINDOW, SLIDING_WINDOW, TOKEN_BUCKET, SLIDING_LOG])
def test_nodes_that_ask_and_nodes_that_know_no_asking_share_a_key(redis_server: RedisServer, algorithm: str) -> None:
    """Each is admitted its part of what there is in four windows, and all together no more than the quota."""

    async def check() -> tuple[list[int], float]:
        meeting = Meeting(redis_server, Limit(40, 6.0, algorithm=algorithm), STRICT, 0)
        fleet, excess = meeting.fleet, 0.0
        for _ in range(240):
            for member in fleet.members:
                fleet.ask(member, "ada", 1, times=1)
                await member.exchanges()
                for key, cost, epoch in member.goes_on():
                    fleet.truth[key].changes(cost, epoch)
                excess = max(excess, fleet.truth["ada"].excess())
            meeting.clock.advance_ns(INTERVAL_NS)
        for hub in meeting.hubs:
            await hub.close()
        return [member.charged for member in fleet.members], excess

    admitted, excess = asyncio.run(check())

    assert 0 >= excess
    # Of a bucket the script of the version before drains what those that ask have used by that part of the rate alone.
    assert min(admitted) >= (4 if algorithm == TOKEN_BUCKET else 8)


def test_what_the_version_before_has_stored_is_no_lost_data(redis_server: RedisServer) -> None:
    """A node of this version finds what those of the version before have used, and the other way round."""

    async def check() -> tuple[int, list[int]]:
        meeting = Meeting(redis_server, Limit(100, 60.0, algorithm=FIXED_WINDOW), STRICT, 0)
        members = meeting.fleet.members
        for member in members:
            member.admits("ada", 1)
            await member.exchanges()
            meeting.fleet.ask(member, "ada", 1, times=5)
            await member.exchanges()
        for member in [*members, *members]:
            meeting.clock.advance_ns(SECOND_NS)
            member.sees("ada")  # to look is to be interested
            await member.exchanges()
        for hub in meeting.hubs:
            await hub.close()
        return meeting.fleet.truth["ada"].used(), [member.sees("ada") for member in members]

    used, seen = asyncio.run(check())

    assert used > 0
    assert [used] * 4 == seen


def test_a_cell_lives_as_long_as_its_most_demanding_node_needs(redis_server: RedisServer) -> None:
    """A node of the version before holds its lines for its whole lease; a node of this one does not shorten that."""

    async def check() -> list[float]:
        meeting = Meeting(redis_server, Limit(100, 1.0, algorithm=SLIDING_WINDOW), STRICT, 0)
        former, present = meeting.fleet.members[:2]
        lives: list[float] = []
        for members in ([present], [former], [present]):
            for member in members:
                for _ in range(2):
                    member.admits("ada", 1)
                    await member.exchanges()
            lives.append(float(redis_server.command("PTTL", "mixed:{0}:c3:limit:1:1000000:ada").lstrip(":")) / 1000)
        for hub in meeting.hubs:
            await hub.close()
        return lives

    own, with_former, after = asyncio.run(check())

    assert own < 2 * LEASE_NS / SECOND_NS < after
    assert with_former > 2 * LEASE_NS / SECOND_NS


LIMITS = (
    LimitReport("short", "sliding-window", 1_000_000, 10, 10, 100, 7, 1, lease_us=30_000_000),
    LimitReport("all of it", "token-bucket", 1_000_000, 10, 10, 100, 7, 1, interval_us=5, apart=3, lease_us=40_000_000),
    LimitReport("day", "fixed-window", 10**11, 10, 10, 0, 7, 1, "calendar@UTC", 0, 20_000, 5, 10**11 + 5),
    LimitReport("node's", "sliding-log", 3_600_000_000, 10, 10, 0, 7, 1),
)
BATCH = Batch(
    "ada.0",
    "ada",
    0,
    7,
    "now",
    100_000,
    600_000_000,
    leaving=False,
    limits=LIMITS,
    cells=(CellReport._make((0, "key", 5, *[0] * 11)),),
)


def test_a_letter_of_this_version_is_one_of_the_version_before() -> None:
    """It has the fields that a member of that version insists on, each of them in its range."""
    letter = write_batch(BATCH)
    (shared_bytes,) = struct.unpack_from("<I", letter, 4)
    shared = msgpack.unpackb(letter[14 : 14 + shared_bytes])
    version, *_, leaving, limits = shared

    assert (3, 10) == (version, len(shared))
    assert leaving in (0, 1)
    assert [15] * len(LIMITS) == [len(limit) for limit in limits]
    assert all(type(number) is int and 0 <= number <= 2**53 for limit in limits for number in (limit[10], limit[12]))


def test_a_lease_of_a_limit_travels_where_the_version_before_does_not_look() -> None:
    """In the place of a calendar's window, which is of no use to a limit without one; and it comes back as it was."""
    assert [30_000_000, 40_000_000, 20_000, 0] == [told_limit(limit)[10] for limit in LIMITS]
    assert LIMITS == tuple(heard_limit(LimitReport(*told_limit(limit))) for limit in LIMITS)  # type: ignore[arg-type]
    assert LIMITS == tuple(read_limit(told_limit(limit)) for limit in LIMITS)
    assert LIMITS == read_batch(write_batch(BATCH), shard=0).limits


def test_a_limit_of_the_version_before_has_no_lease_of_its_own() -> None:
    """What a member of that version has written is read as it was meant."""
    written = tuple(told_limit(limit._replace(lease_us=0)) for limit in LIMITS)

    assert [0, 0, 0, 0] == [read_limit(limit).lease_us for limit in written]
