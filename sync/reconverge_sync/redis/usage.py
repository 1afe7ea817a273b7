"""The usage ledger at a Redis: scripts add usage up, by the rule of `merge/usage.py`.

All keys of a shard share its hash tag, so that a batch is one script on one server of a cluster. Keys begin with
`NAMESPACE:{SHARD}:u1:`, and each expires some time after its period.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from itertools import chain
from typing import Any, Final, TypeVar

import msgpack

from reconverge.clock import MICROSECOND_NS, Clock
from reconverge.errors import ONE_VERSION, HubUnavailable
from reconverge.hub.report import WHOLE_MAX
from reconverge.hub.usage import (
    EVENTS_MAX,
    HOUR,
    LENGTH_MS,
    LOAD_KEPT_US,
    MONTH,
    REGISTERS,
    ROWS_MAX,
    SECRET_KEPT_MS,
    SEQUENCE_KEPT_MS,
    SKETCHES_KEPT_HOURS,
    SKETCHES_MAX,
    SKETCHES_RETENTION,
    AddressReport,
    Counts,
    ExportLease,
    ExportMarks,
    NodeLoad,
    Period,
    Recorded,
    Retention,
    UsageBatch,
    UsageEvent,
    UsageKey,
    UsageRow,
    counted_us,
    field_of,
    key_of,
    others_route,
    page_of,
    period_end_s,
)
from reconverge_sync.merge.addresses import RANK_MAX
from reconverge_sync.redis.lua.scripts import Call, Script, run, script_of
from reconverge_sync.redis.stored import unpacked

T = TypeVar("T")

UNREADABLE: Final = "the usage that the server keeps cannot be read"
META_MS: Final = Retention().keep_ms(MONTH)
"""For how many milliseconds after the last batch the progress of an export (its marks) is kept."""
EVENTS_KEPT_MS: Final = META_MS
"""For how many milliseconds issued events are kept: as long as any period, because events would else be issued
again."""
SKETCHES_KEPT_MS: Final = SKETCHES_KEPT_HOURS * LENGTH_MS[HOUR]
MILLI: Final = 1000

RETRACT: Final = script_of("usage/retract")
RECORD: Final = script_of("now", "usage/record")
ISSUE: Final = script_of("usage/issue")
MARK: Final = script_of("now", "usage/mark")
LEAD: Final = script_of("now", "usage/lead")
LOADS: Final = script_of("now", "usage/loads")
NOTE: Final = script_of("now", "usage/addresses")
SECRET: Final = script_of("usage/secret")


class RedisUsage:
    """The usage ledger that a Redis stores.

    Args:
        ask: runs a command on the server of a shard, as in `ask("GET", key, shard=0)`.
        prefix: returns the prefix of a shard's keys.
        shards: the number of parts into which identities are divided.
        clock: the source of time in place of the server's clock; for tests.
        rows_max: the most rows of a page.
    """

    def __init__(
        self,
        ask: Call,
        prefix: Callable[[int], str],
        *,
        shards: int,
        clock: Clock | None = None,
        rows_max: int = ROWS_MAX,
    ) -> None:
        self._ask = ask
        self._prefix = prefix
        self._shards = shards
        self._clock = clock
        self._rows_max = rows_max
        self._addresses = RedisAddresses(ask, self._run, self._name, given_time=self._given_time)

    def preceded_by(self, ensure: Callable[[], Awaitable[None]]) -> RedisUsage:
        """Returns a ledger of the same data that awaits `ensure()` before each command, and raises its exceptions."""
        ask = self._ask

        async def ask_then(*command: object, shard: int = 0) -> object:
            await ensure()
            return await ask(*command, shard=shard)

        kept = {"shards": self._shards, "rows_max": self._rows_max}
        return RedisUsage(ask_then, self._prefix, clock=self._clock, **kept)

    @property
    def shards(self) -> int:
        return self._shards

    async def record(self, batch: UsageBatch) -> Recorded:
        name = self._name(batch.shard)
        keys: list[bytes] = [name("meta"), name(f"s:{batch.account}"), name("loads")]
        groups: list[list[Any]] = []
        places: list[int] = []
        for (period, page), rows in _grouped(batch.rows).items():
            keys += [name(f"t:{period}:{page}"), name(f"o:{period}:{batch.account}")]
            header = [period.kind, period.number, batch.kept.keep_ms(period.kind), others_route(batch.shard, page)]
            header += counted_us(period, batch.kept)
            groups.append(header + [each for _, *row in rows for each in row])
            places += [place for place, *_ in rows]
        keys += [name(f"o:{period}:{batch.account}") for period in batch.leaving or ()]
        leaving, load = int(batch.leaving is not None), batch.load or NodeLoad("", 0, 0, 0)
        rates = [round(load.requests_per_s * MILLI), round(load.cost_per_s * MILLI)]
        header = [batch.sequence, batch.answered, leaving, SEQUENCE_KEPT_MS, META_MS, self._rows_max, load.node]
        header += [*rates, LOAD_KEPT_US]
        reply = await self._run(RECORD, batch.shard, keys, _packed(header), _packed(groups), self._given_time())
        return _read(lambda found: _recorded(found, places), reply)

    async def retract(self, account: str, shard: int, rows: Sequence[tuple[Period, UsageKey]]) -> None:
        name = self._name(shard)
        groups: dict[tuple[Period, int], list[bytes]] = {}
        for period, key in rows:
            field = field_of(key)
            groups.setdefault((period, page_of(field)), []).append(field)
        keys = [
            each
            for period, page in groups
            for each in (*(name(f"{kind}:{period}:{page}") for kind in "tip"), name(f"o:{period}:{account}"))
        ]
        if keys:
            await self._run(RETRACT, shard, keys, *map(_packed, groups.values()))

    async def totals(self, period: Period, shard: int, page: int) -> Sequence[UsageRow]:
        reply = await self._ask("HGETALL", self._name(shard)(f"t:{period}:{page}"), shard=shard)
        return _read(lambda found: [_row(period, *each) for each in _pairs(found) if each[0] != b"#"], reply)

    async def loads(self) -> Sequence[NodeLoad]:
        reply = await self._run(LOADS, 0, [self._name(0)("loads")], LOAD_KEPT_US, self._given_time())
        return _read(lambda found: [_load(*each) for each in _pairs(found)], reply)

    async def lead_export(self, kind: str, exporter: str, keep_s: float) -> ExportLease:
        keys, keep_us = [self._name(0)(f"lead:{kind}")], round(keep_s * 1_000_000)
        return _read(_lease, await self._run(LEAD, 0, keys, exporter, keep_us, self._given_time()))

    async def marks(self, kind: str, shard: int) -> ExportMarks:
        reply = await self._ask("HGETALL", self._name(shard)("meta"), shard=shard)
        return _read(lambda found: _marks(kind, dict(_pairs(found))), reply)

    async def close_period(self, period: Period, shard: int) -> bool:
        return await self._mark(f"closed:{period.kind}", period, shard, None)

    async def issue(self, period: Period, shard: int, page: int) -> Sequence[UsageEvent]:
        name = self._name(shard)
        keys = [name(f"{each}:{period}:{page}") for each in "tip"]
        reply = await self._run(ISSUE, shard, keys, EVENTS_MAX, EVENTS_KEPT_MS)
        return _read(lambda found: [_event(period, *each) for each in _pairs(found)], reply)

    async def confirm(self, events: Sequence[UsageEvent], shard: int, page: int) -> None:
        if events:
            names = [b"%d:%b" % (event.number, field_of(event.key)) for event in events]
            await self._ask("HDEL", self._name(shard)(f"p:{events[0].period}:{page}"), *names, shard=shard)

    async def finish(self, period: Period, shard: int, late_mark: int | None) -> None:
        await self._mark(f"done:{period.kind}", period, shard, late_mark)

    async def address_secret(self, proposed: bytes = b"") -> bytes:
        return await self._addresses.secret(proposed)

    async def note_addresses(self, report: AddressReport) -> int:
        return await self._addresses.note(report)

    async def address_sketches(self, hour: int, shard: int, secret: bytes) -> Mapping[str, bytes]:
        return await self._addresses.sketches(hour, shard, secret)

    async def _mark(self, mark: str, period: Period, shard: int, late_mark: int | None) -> bool:
        late = f"late:{period.kind}:{period.number}", "" if late_mark is None else late_mark
        over = period_end_s(period) * 1_000_000, self._given_time()
        return bool(
            await self._run(MARK, shard, [self._name(shard)("meta")], mark, period.number, META_MS, *late, *over)
        )

    async def _run(self, what: Script, shard: int, keys: Sequence[bytes], *arguments: object) -> object:
        return await run(partial(self._ask, shard=shard), what, len(keys), *keys, *arguments)

    def _name(self, shard: int) -> Callable[[str], bytes]:
        prefix = f"{self._prefix(shard)}u1:"
        return lambda rest: f"{prefix}{rest}".encode()

    def _given_time(self) -> str:
        return "" if self._clock is None else str(self._clock.wall_ns() // MICROSECOND_NS)


class RedisAddresses:
    """The sketches of client addresses that a Redis stores.

    `ask` runs a command, `run` a script, and `name` returns a key of a shard.
    """

    def __init__(
        self,
        ask: Call,
        run: Call,
        name: Callable[[int], Callable[[str], bytes]],
        *,
        given_time: Callable[[], str],
        sketches_max: int = SKETCHES_MAX,
    ) -> None:
        self._ask = ask
        self._run = run
        self._name = name
        self._given_time = given_time
        self._sketches_max = sketches_max

    async def secret(self, proposed: bytes) -> bytes:
        """Returns the secret of the fleet; `proposed` becomes the secret if there is none yet."""
        return bytes(await self._run(SECRET, 0, [self._name(0)("secret")], proposed, SECRET_KEPT_MS))

    async def note(self, report: AddressReport) -> int:
        # Identities as bytes: an identity may contain half of a surrogate pair, which a server cannot store as text.
        sent = [(name.encode("utf-8", "surrogatepass"), risen) for name, risen in report.risen.items()]
        packed = msgpack.packb(list(chain.from_iterable(sent)), use_bin_type=False)
        key = self._key(report.hour, report.shard, report.secret)
        bounds = self._sketches_max, SKETCHES_KEPT_MS, RANK_MAX
        counted = counted_us(Period(HOUR, report.hour), SKETCHES_RETENTION)
        left_out = await self._run(NOTE, report.shard, [key], packed, *bounds, *counted, self._given_time())
        return int(left_out)

    async def sketches(self, hour: int, shard: int, secret: bytes) -> Mapping[str, bytes]:
        found = await self._ask("HGETALL", self._key(hour, shard, secret), shard=shard)
        try:
            return {_identity(name): _checked_sketch(sketch) for name, sketch in _pairs(found) if name[:1] == b"i"}
        except ValueError as error:
            when = Period(HOUR, hour)
            problem = f"the sketches of addresses of {when} in shard {shard} cannot be read: {str(error)[:200]}"
            raise HubUnavailable("protocol", f"{problem}; {ONE_VERSION}") from error

    def _key(self, hour: int, shard: int, secret: bytes) -> bytes:
        """Returns the Redis key of an hour's sketches, with a hash of `secret`, because key names are no secret."""
        return self._name(shard)(f"a:{hour}:{sha256(secret).hexdigest()[:16]}")


def _grouped(rows: Sequence[UsageRow]) -> dict[tuple[Period, int], list[tuple[int, bytes, int, int, int]]]:
    """Returns rows grouped by period and page; for each, its index in the batch, its field in Redis, and its counts."""
    groups: dict[tuple[Period, int], list[tuple[int, bytes, int, int, int]]] = {}
    for place, (period, key, counts) in enumerate(rows):
        field = field_of(key)
        groups.setdefault((period, page_of(field)), []).append(
            (place, field, counts.cost, counts.requests, counts.refused)
        )
    return groups


def _packed(value: object) -> bytes:
    packed: bytes = msgpack.packb(value, use_bin_type=False)
    return packed


def _read(reader: Callable[[Any], T], reply: object) -> T:
    """Returns `reader(reply)`. Raises HubUnavailable if the reader cannot read the reply."""
    try:
        return reader(reply)
    except (ValueError, TypeError, LookupError, msgpack.UnpackException) as error:
        raise HubUnavailable("protocol", f"{UNREADABLE}: {str(error)[:200]}; {ONE_VERSION}") from error


def _pairs(found: Any) -> list[tuple[bytes, bytes]]:
    """Returns the fields and values of a Redis hash, from the dictionary of HGETALL or from a script's flat list."""
    if isinstance(found, Mapping):
        return list(found.items())
    return list(zip(found[::2], found[1::2], strict=True))


def _recorded(reply: Any, places: Sequence[int]) -> Recorded:
    """Returns the result of recording a batch of usage, read from the script's reply.

    `places` has the index in the batch of each row, in the order in which the script got the rows.
    """
    known, merged, folded, hub_us, count, *rest = reply
    refused = tuple(sorted(places[int(each) - 1] for each in rest[:count]))
    marks = {str(kind, "utf-8"): int(number) for kind, number in _pairs(rest[count:])}
    return Recorded(int(known), bool(merged), int(folded), marks, int(hub_us), refused)


def _lease(reply: Any) -> ExportLease:
    leads, exporter, until_us, hub_us = reply
    return ExportLease(bool(leads), str(exporter, "utf-8"), int(until_us), int(hub_us))


def _numbers(packed: bytes, count: int) -> list[int]:
    numbers = list(unpacked(packed))
    if len(numbers) != count or any(type(each) is not int or abs(each) > WHOLE_MAX for each in numbers):
        raise ValueError(
            f"a field of usage must have {count} whole numbers up to {WHOLE_MAX}, and it has {len(numbers)} values"
        )
    return numbers


def _row(period: Period, field: bytes, packed: bytes) -> UsageRow:
    return UsageRow(period, key_of(field), Counts(*_numbers(packed, len(Counts._fields))))


def _event(period: Period, name: bytes, packed: bytes) -> UsageEvent:
    number, _, field = name.partition(b":")
    return UsageEvent(period, key_of(field), int(number), Counts(*_numbers(packed, len(Counts._fields))))


def _load(node: bytes, packed: bytes) -> NodeLoad:
    requests, cost, at_us = _numbers(packed, 3)
    return NodeLoad(str(node, "utf-8"), requests / MILLI, cost / MILLI, at_us)


def _marks(kind: str, fields: dict[bytes, bytes]) -> ExportMarks:
    def mark(name: str) -> int | None:
        found = fields.get(f"{name}:{kind}".encode())
        return None if found is None else int(found)

    begin = f"late:{kind}:".encode()
    late = {int(name[len(begin) :]): int(value) for name, value in fields.items() if name.startswith(begin)}
    return ExportMarks(mark("first"), mark("closed"), mark("done"), late)


def _identity(field: bytes) -> str:
    """Returns the identity whose sketch has the name `field` in an hour's hash. Raises ValueError if it is no text."""
    return field[1:].decode("utf-8", "surrogatepass")


def _checked_sketch(sketch: bytes) -> bytes:
    """Returns `sketch` unchanged. Raises ValueError if it has the wrong length."""
    if len(sketch) != REGISTERS:
        raise ValueError(f"a sketch has {len(sketch)} bytes instead of {REGISTERS}")
    return bytes(sketch)
