"""Goal: the script merges a batch whole or not at all, and leaves nothing behind that does not expire.

Method: batches that no node would send, and a look at the server's keys.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import ceil
from random import Random
from struct import pack
from typing import Any

import msgpack
import pytest
import redis

from reconverge.clock import SECOND_NS, ManualClock, SystemClock
from reconverge.errors import HubUnavailable
from reconverge.hub.checking.answers import check_answer
from reconverge.hub.registry import HubSettings
from reconverge.hub.report import SCHEMA_VERSION, Batch, CellReport
from reconverge.limit import SLIDING_LOG, SLIDING_WINDOW, TOKEN_BUCKET
from reconverge.testing.claims.scenes.scene import INTERVAL_S, QUOTA, START_S, Scene, Voice, limit
from reconverge_sync.codec import encode_batch
from reconverge_sync.merge.rule import SCANNED_MAX
from reconverge_sync.redis.hub import EXCHANGE, RedisHub
from tests.support.servers import RedisServer

SETTINGS = HubSettings("shop", 5.0)
SECOND = limit(algorithm="sliding-window", window_us=1_000_000)
Change = Callable[[Batch], Batch]


def _header(**fields: Any) -> Change:
    return lambda batch: batch._replace(**fields)


def _limit(**fields: Any) -> Change:
    return lambda batch: batch._replace(limits=(batch.limits[0]._replace(**fields),))


def _cell(**fields: Any) -> Change:
    """Spoil the last cell, when the others would have been merged already."""
    return lambda batch: batch._replace(cells=(*batch.cells[:-1], batch.cells[-1]._replace(**fields)))


MALFORMED: dict[str, Change] = {
    "no name": _header(node=""),
    "the name of the departed": _header(node="-"),
    "the name of the sums": _header(node="g"),
    "a long name": _header(node="n" * 129),
    "no account": _header(account=""),
    "the account of the departed": _header(account="-"),
    "no number": _header(sequence=0),
    "half a number": _header(sequence=1.5),
    "too large a number": _header(sequence=2**60),
    "a generation that is none": _header(generation=7),
    "a negative interval": _header(interval_us=-1),
    "no lease": _header(lease_us=0),
    "a limit without a name": _limit(name=None),
    "no window": _limit(window_us=0),
    "no quota": _limit(quota=0),
    "no capacity": _limit(capacity=0),
    "an overshoot below infinite": _limit(overshoot_milli=-2),
    "a window of centuries": _limit(window_us=2**53),
    "a quota beyond all quotas": _limit(quota=10**12 + 1),
    "a capacity beyond all quotas": _limit(capacity=2**53),
    "more withheld than there is": _limit(withheld=101),
    "a limit's own interval of years": _limit(interval_us=2**53),
    "an interval of years": _header(interval_us=2**53),
    "a lease of centuries": _header(lease_us=2**53),
    "a negative total": _limit(charged=-1),
    "a refund that is no number": _limit(refunded="1"),
    "a negative allowance": _cell(allowance=-1),
    "an allowance that is no number": _cell(allowance=float("nan")),
    "an infinite base": _cell(base=float("inf")),
    "half a need": _cell(need_milli=0.5),
    "an ask that is text": _cell(ask="1"),
    "a reset that is too late": _cell(reset_us=2**53 + 2),
    "an epoch that is too late": _cell(epoch=2**53 + 2),
    "an epoch that is too early": _cell(epoch=-(2**60)),
    "no epoch": _cell(epoch=None),
    "a list for a count": _cell(current=[1]),
    "a count that is too large": _cell(current=2**53 + 2),
    "a limit that is not there": _cell(limit=-1),
    "a large amount, and a reset that is too late": _cell(reset_us=2**53 + 2, current=2**40),
}


def test_a_refusal_says_what_is_wrong(redis_server: RedisServer) -> None:
    """So that the log of a node names the limit's numbers, or the two schemas, and not the script."""
    keys = ["shop:{0}:meta", "shop:{0}:nodes", "shop:{0}:accounts", "shop:{0}:one", "shop:{0}:two"]
    older = _packed(SCHEMA_VERSION - 1, *PARTS[1:])
    long_lease = _packed(*PARTS[:8], 2**53, *PARTS[9:])

    with redis.Redis(unix_socket_path=str(redis_server.socket)) as admin:
        for shared, what in ((older, f"is not {SCHEMA_VERSION}"), (long_lease, "interval or lease")):
            with pytest.raises(redis.ResponseError, match=what):
                admin.execute_command("EVAL", EXCHANGE.text, len(keys), *keys, shared, ROWS)


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_batch_changes_nothing(redis_server: RedisServer, name: str) -> None:
    """It is refused before the first write, though most of it is well formed."""

    async def send() -> None:
        hub = RedisHub(redis_server.url, SETTINGS)
        voice = Scene(hub, SystemClock(), join=lambda known: known).voice()
        batch = voice.batch(*(voice.cell(key, need=5) for key in ("ada", "bob", "eve")))
        try:
            await hub.exchange(MALFORMED[name](batch))
        finally:
            await hub.close()

    with pytest.raises(HubUnavailable, match=r"^protocol: ") as raised:
        asyncio.run(send())

    assert raised.value.applied is False
    assert ":0" == redis_server.command("DBSIZE")


def _packed(*parts: object) -> bytes:
    payload: bytes = msgpack.packb(parts)
    return payload


SHARED, ROWS = encode_batch(
    Batch(
        "node", "account", 0, 1, "", 1_000_000, 60_000_000, leaving=False, limits=(limit(),),
        cells=tuple(CellReport._make([0, "x", 1, *[5] * 10, 0]) for _ in range(2)),
    ),
    "candidate",
    certainly_new=False,
)  # fmt: skip
PARTS = msgpack.unpackb(SHARED)
HOSTILE: dict[str, tuple[bytes, bytes]] = {
    "nothing": (b"", b""),
    "no msgpack": (b"\xc1", ROWS),
    "a batch of the schema before": (_packed(SCHEMA_VERSION - 1, *PARTS[1:], [[0, 1, *[5] * 10, 0]]), b""),
    "a part too few": (_packed(*PARTS[:-1]), ROWS),
    "limits that are none": (_packed(*PARTS[:-2], "limits", PARTS[-1]), ROWS),
    "no moment of the last answer": (_packed(*PARTS[:-1], -1), ROWS),
    "no rows": (SHARED, b""),
    "a byte too few": (SHARED, ROWS[:-1]),
    "a byte too many": (SHARED, ROWS + b"\0"),
    "a row too few": (SHARED, ROWS[:60]),
    "a row too many": (SHARED, ROWS + ROWS[:60]),
    "rows of two sizes": (SHARED, ROWS[:60] + bytes(104)),
    "wide rows with negative amounts": (SHARED, pack("<13q", 1, 0, 0, *[5] * 10) + pack("<13q", 1, 0, 0, *[-1] * 10)),
    "wide rows with a count below all": (SHARED, bytes(104) + pack("<13q", 1, 0, 0, -(2**63), *[5] * 9)),
    "a limit that is not there": (SHARED, ROWS[:76] + pack("<I", 1) + ROWS[80:]),
    "a limit that is not there, in wide rows": (SHARED, bytes(104) + pack("<13q", 1, 0, 1, *[5] * 10)),
    "more cells than a batch can have": (SHARED, ROWS[:60] * 257),
    "nothing but ones": (SHARED, b"\xff" * 120),
    "nothing but ones, and wide": (SHARED, b"\xff" * 208),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_bytes_that_no_node_would_send_change_nothing(redis_server: RedisServer, name: str) -> None:
    """Whoever can reach the server can send them."""
    shared, rows = HOSTILE[name]
    cells = 257 if rows == ROWS[:60] * 257 else 2
    keys = [
        "shop:{0}:meta",
        "shop:{0}:nodes",
        "shop:{0}:accounts",
        *(f"shop:{{0}}:{number}" for number in range(cells)),
    ]

    with (
        redis.Redis(unix_socket_path=str(redis_server.socket)) as admin,
        pytest.raises(redis.ResponseError, match=r"^RCINVALID "),
    ):
        admin.execute_command("EVAL", EXCHANGE.text, len(keys), *keys, shared, rows)

    assert ":0" == redis_server.command("DBSIZE")


def test_the_same_bytes_are_merged_when_nothing_is_wrong_with_them(redis_server: RedisServer) -> None:
    """So it is for what is wrong with the others that they are refused."""
    keys = ["shop:{0}:meta", "shop:{0}:nodes", "shop:{0}:accounts", "shop:{0}:one", "shop:{0}:two"]

    with redis.Redis(unix_socket_path=str(redis_server.socket)) as admin:
        admin.execute_command("EVAL", EXCHANGE.text, len(keys), *keys, SHARED, ROWS)

    assert ":5" == redis_server.command("DBSIZE")


@pytest.mark.parametrize(("schema", "granted"), [(SCHEMA_VERSION, True), (SCHEMA_VERSION - 1, False)])
async def test_data_of_an_older_schema_are_lost_data(redis_server: RedisServer, schema: int, granted: bool) -> None:
    """They begin anew, and strictly: nothing is granted until nodes with allowances cannot use them any more."""
    strict = limit(overshoot_milli=0)
    begun = {"generation": "old", "born": "0", "schema": str(schema)}
    allowances: list[int] = []

    redis_server.command("HSET", "shop:{0}:meta", *(word for entry in begun.items() for word in entry))
    clock = ManualClock(START_S)
    hub = RedisHub(redis_server.url, SETTINGS, clock=clock, new_name=lambda: "new")
    voice = Scene(hub, clock, join=lambda known: known).voice()
    for _ in range(6):
        allowances.append((await voice.reports(of=strict, need=5)).allowance)
        clock.advance(INTERVAL_S)
    await hub.close()
    generation = voice.generation

    assert ("old" if granted else "new") == generation
    assert granted is any(allowances)


def test_data_of_a_newer_schema_are_left_alone(redis_server: RedisServer) -> None:
    """A node that was not updated yet decides from memory, and spoils nothing."""
    redis_server.command("HSET", "shop:{0}:meta", "generation", "now", "schema", str(SCHEMA_VERSION + 1))

    async def send() -> None:
        hub = RedisHub(redis_server.url, SETTINGS)
        voice = Scene(hub, SystemClock(), join=lambda known: known).voice()
        try:
            await hub.exchange(voice.batch(voice.cell(need=5)))
        finally:
            await hub.close()

    with pytest.raises(HubUnavailable, match=r"^protocol: .*newer"):
        asyncio.run(send())

    assert ":1" == redis_server.command("DBSIZE")
    assert ":2" == redis_server.command("HLEN", "shop:{0}:meta")


async def test_a_cell_is_told_when_it_expires_only_now_and_then(redis_server: RedisServer) -> None:
    """Each time for a quarter longer than it has to live; and never does it live shorter than that."""
    hourly = limit(window_us=3_600_000_000)
    least_s = 2 * 3600 + 2 * 60 + 4 * INTERVAL_S

    with redis.Redis(unix_socket_path=str(redis_server.socket)) as admin:
        admin.config_resetstat()
        clock = ManualClock(START_S)
        hub = RedisHub(redis_server.url, SETTINGS, clock=clock)
        voice = Scene(hub, clock, join=lambda known: known).voice(lease_us=60_000_000)
        calls = []
        for current in range(100):
            await voice.reports(of=hourly, current=current, need=10)
            calls.append(admin.info("commandstats").get("cmdstat_pexpire", {"calls": 0})["calls"])
            clock.advance(50.0)
        await hub.close()
        (cell,) = [key for key in admin.scan_iter() if b":c" in key]

        assert least_s - 1 < admin.ttl(cell) <= 1.25 * least_s

    # One for the names of the nodes at each exchange; at the first, one more for each key.
    assert 4 == calls[0]
    assert 100 + 3 + 2 == calls[-1]


async def test_every_key_expires(redis_server: RedisServer) -> None:
    """After twice the window, two leases and what the server keeps of its nodes; and not before twice the window."""
    window_s = 3600

    hub = RedisHub(redis_server.url, SETTINGS, clock=ManualClock(START_S))
    voice = Scene(hub, ManualClock(START_S), join=lambda known: known).voice(lease_us=60_000_000)
    hourly = limit(window_us=window_s * 1_000_000, charged=5)
    await voice.reports(of=hourly, current=5, need=10)
    await voice.leaves(voice.cell("bob", of=hourly, current=5))
    await hub.close()

    with redis.Redis(unix_socket_path=str(redis_server.socket)) as admin:
        lives_s = {key: admin.ttl(key) for key in admin.scan_iter()}

    assert 5 == len(lives_s)
    assert all(2 * window_s < seconds <= 62 * 86_400 for seconds in lives_s.values())


async def test_a_cell_that_is_neither_held_nor_used_goes_at_once(redis_server: RedisServer) -> None:
    """And stays as long as anything of it is: an allowance, a use that counts, another node's entry, or a reset."""
    clock = ManualClock(START_S)
    hub = RedisHub(redis_server.url, SETTINGS, clock=clock, certainly_new=lambda: True)
    scene = Scene(hub, clock, join=lambda known: known)
    ada, bob = scene.voice(), scene.voice()
    kept: list[str] = []

    async def tells(voice: Voice, *, current: int = 0, need: int = 0, reset_us: int = 0) -> None:
        voice.allowances.clear()  # it holds none any more
        await voice.reports("ada", of=SECOND, current=current, need=need, reset_us=reset_us)
        kept.append(redis_server.command("EXISTS", f"shop:{{0}}:c{SCHEMA_VERSION}:limit:1:1000000:ada"))

    await tells(ada)
    await tells(ada, need=1)
    await tells(bob, current=1)
    await tells(ada)
    clock.advance_ns(3 * SECOND_NS)
    await tells(bob)
    await tells(bob, reset_us=clock.wall_ns() // 1000)
    clock.advance_ns(3 * SECOND_NS)
    await tells(bob)
    await hub.close()

    assert [":0", ":1", ":1", ":1", ":0", ":1", ":0"] == kept


async def test_keys_say_which_fleet_and_shard_they_belong_to(redis_server: RedisServer) -> None:
    """An operator can find, measure and delete one fleet's; a Cluster keeps each shard in one place."""
    hub = RedisHub(redis_server.url, SETTINGS, shards=3)
    scene = Scene(hub, SystemClock(), join=lambda known: known)
    await scene.voice(shard=2).reports("{ada}")
    await scene.voice(shard=2).reports("{ada}", current=1)
    await hub.close()

    with redis.Redis(unix_socket_path=str(redis_server.socket)) as admin:
        keys = sorted(str(key, "utf-8") for key in admin.scan_iter())

    assert ["accounts", f"c{SCHEMA_VERSION}:limit:0:21600000000:{{ada}}", "meta", "nodes"] == [
        key.removeprefix("shop:{2}:") for key in keys
    ]


def test_one_exchange_is_one_command(redis_server: RedisServer) -> None:
    """However many keys it speaks of; a batch cut in the middle is not there at all."""
    with redis.Redis(unix_socket_path=str(redis_server.socket)) as admin:

        async def live() -> tuple[int, int]:
            hub = RedisHub(redis_server.url, SETTINGS)
            voice = Scene(hub, SystemClock(), join=lambda known: known).voice()
            await voice.says_hello()
            before = _calls(admin)
            await voice.exchanges(voice.batch(*(voice.cell(f"key{number}", need=1) for number in range(256))))
            after = _calls(admin)
            await hub.close()
            return before, after

        before, after = asyncio.run(live())

    assert 1 == after - before


def _calls(admin: redis.Redis) -> int:
    """How many scripts were called so far."""
    stats = admin.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("eval", "evalsha"))


async def test_one_batch_reads_a_bounded_number_of_entries(redis_server: RedisServer) -> None:
    """However many nodes share its keys, other clients of the server do not wait for long; every key has its turn."""
    crowd, cells = 40, 256
    turns = ceil(cells * (crowd - 1) / SCANNED_MAX)
    smaller = limit(quota=60)

    with redis.Redis(unix_socket_path=str(redis_server.socket)) as admin:
        clock = ManualClock(START_S)
        scene = Scene(RedisHub(redis_server.url, SETTINGS, clock=clock), clock, join=lambda known: known)
        first, *others = [scene.voice() for _ in range(crowd)]
        keys = [f"key{number}" for number in range(cells)]
        for voice in others:
            await voice.exchanges(voice.batch(*(voice.cell(key, of=smaller, current=1) for key in keys)))
        for voice in others:
            await voice.leaves()
        read: list[int] = []
        recovered = [0]
        while recovered[-1] < cells and len(read) < 10 * turns:
            clock.advance(INTERVAL_S)
            admin.config_resetstat()
            answer = await first.exchanges(first.batch(*(first.cell(key, need=1) for key in keys)))
            commands: Any = admin.info("commandstats")
            read.append(commands["cmdstat_hgetall"]["calls"])
            recovered.append(sum(cell.capacity == QUOTA for cell in answer.cells))
        await scene.close()
    names = 1

    assert read[0] <= SCANNED_MAX // (crowd - 1) + 1 + names
    assert recovered[1] <= SCANNED_MAX // (crowd - 1) + 1
    assert cells == recovered[-1]


CEILING_S = 30 * 366 * 86_400
"""Windows of ten years can be declared, use counts for up to two of them, and expiry is put off by a quarter."""
LARGE = (0, 1, 1000, 2**31, 2**43, 10**12, 2**53)


def _any_batch(random: Random, hub_us: int) -> tuple[list[Any], bytes]:
    """A batch with any numbers in it that the schema can carry: some as they should be, some as large as can be."""

    def drawn(usual: int) -> int:
        return usual if random.random() < 0.8 else random.choice(LARGE)

    window_us = drawn(60_000_000)
    limit = ["login", random.randrange(4), window_us, drawn(100), drawn(100), random.choice([-1, 0, 100, drawn(100)])]
    limit += [drawn(5), drawn(5), random.choice(["", "first-hit", "interval"]), drawn(0), drawn(0), drawn(0), drawn(0)]
    shared = [SCHEMA_VERSION, "bad.0", "bad", drawn(10**9), "", "bad", 0]
    shared += [drawn(100_000), drawn(30_000_000), int(random.random() < 0.1), [limit], drawn(hub_us - 5)]
    epoch = hub_us // max(1, window_us) + random.choice([0, 0, 0, 1, -1, 2**40])
    amounts = [drawn(amount) for amount in (5, 5, 10, 10, 1, 2000, 0, 2, 1000, 5)]
    return shared, pack("<13q", epoch, drawn(0), 0, *amounts)


@pytest.mark.slow
def test_whatever_a_node_says_every_key_expires(redis_server: RedisServer) -> None:
    """A batch is refused without a trace, or every key has a life that ends."""
    hub_us = int(START_S * 1_000_000)
    keys = ["shop:{0}:meta", "shop:{0}:nodes", "shop:{0}:accounts", "shop:{0}:one"]
    refused, merged = 0, 0

    with redis.Redis(unix_socket_path=str(redis_server.socket)) as admin:
        for seed in range(1500):
            shared, row = _any_batch(Random(seed), hub_us)
            if seed % 3 == 0:
                admin.flushall()
            before = {key: admin.dump(key) for key in admin.scan_iter()}
            problem = ""
            try:
                admin.execute_command(
                    "EVAL", EXCHANGE.text, len(keys), *keys, msgpack.packb(shared), row, str(hub_us + seed)
                )
            except redis.ResponseError as error:
                problem = str(error)
            after = {key: admin.dump(key) for key in admin.scan_iter()}
            lives_ms = {key: admin.pttl(key) for key in after}
            refused += problem != ""
            merged += problem == ""

            assert problem.startswith("RCINVALID ") or not problem, f"seed {seed}: {problem}"
            assert before == after or not problem, f"seed {seed}"
            assert all(life_ms != -1 for life_ms in lives_ms.values()), f"seed {seed}: {lives_ms}"
            assert max(lives_ms.values(), default=0) <= 1000 * CEILING_S, f"seed {seed}: {lives_ms}"

    assert merged > 100 < refused


@pytest.mark.parametrize("kind", [1, 2, 3])
def test_whatever_a_node_says_the_others_are_served_when_it_has_gone(redis_server: RedisServer, kind: int) -> None:
    """After its lease and ten times what its limit takes to run out, the key is theirs, and they can reset it."""
    algorithm = {1: SLIDING_WINDOW, 2: TOKEN_BUCKET, 3: SLIDING_LOG}[kind]
    of = limit("login", algorithm=algorithm, window_us=60_000_000)

    async def live(said: dict[str, Any]) -> tuple[int, int]:
        clock = ManualClock(START_S)
        scene = Scene(RedisHub(redis_server.url, SETTINGS, clock=clock), clock, join=lambda known: known)
        bad, good = scene.voice(lease_us=60_000_000), scene.voice(lease_us=600_000_000)
        await good.reports(of=of, need=1)
        cell = bad.cell(of=of, need=1)
        await bad.sends(bad.batch(cell._replace(report=cell.report._replace(**said))))
        for _ in range(150):
            clock.advance(INTERVAL_S / 2)
            await good.reports(of=of, need=50)
        reset_us = scene.hub_us()
        heard = await good.reports(of=of, need=100, reset_us=reset_us)
        allowance = (await good.reports(of=of, need=100, reset_us=reset_us)).allowance
        await scene.close()
        return allowance, heard.reset_us - reset_us

    for field in ("current", "previous", "allowance", "overdraft", "need_milli", "ask", "demand_milli", "reset_us"):
        redis_server.command("FLUSHALL")
        assert (100, 0) == asyncio.run(live({field: 2**53})), field


@pytest.mark.parametrize("kind", [1, 2, 3])
@pytest.mark.parametrize("said", [-(2**53), -1, 2**53])
async def test_whatever_a_node_has_counted_the_others_are_told_what_can_be(
    redis_server: RedisServer, kind: int, said: int
) -> None:
    """In the same window and in those after it; an answer that cannot be would stop their exchanges about all keys."""
    algorithm = {1: SLIDING_WINDOW, 2: TOKEN_BUCKET, 3: SLIDING_LOG}[kind]
    of = limit("login", algorithm=algorithm, window_us=60_000_000)

    redis_server.command("FLUSHALL")
    clock = ManualClock(START_S)
    scene = Scene(RedisHub(redis_server.url, SETTINGS, clock=clock), clock, join=lambda known: known)
    bad, good = scene.voice(lease_us=600_000_000), scene.voice(lease_us=600_000_000)
    await good.reports(of=of, need=1)
    cell = bad.cell(of=of, need=1)
    await bad.sends(bad.batch(cell._replace(report=cell.report._replace(current=said))))
    for _ in range(40):
        clock.advance(5.0)
        batch = good.batch(good.cell(of=of, need=1))
        check_answer(batch, await good.sends(batch))
    await scene.close()
