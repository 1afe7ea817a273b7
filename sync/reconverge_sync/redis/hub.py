"""A hub on one Redis: a script there applies the merge rule, in one round trip for each batch."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from secrets import token_hex
from typing import Any, Final, Protocol

import redis.asyncio
from redis.exceptions import NoScriptError

from reconverge.clock import MICROSECOND_NS, Clock
from reconverge.errors import HubUnavailable
from reconverge.hub.adopting import Adoption, HubData
from reconverge.hub.checking.probe import TRIAL, scratch_namespace
from reconverge.hub.diagnosis import Diagnosis
from reconverge.hub.erasing import Erased, Erasures
from reconverge.hub.port import IndexHints
from reconverge.hub.reading import KeyQuestion, KeyReadings
from reconverge.hub.registry import HubSettings, redacted
from reconverge.hub.report import (
    SCHEMA_VERSION,
    Answer,
    Batch,
    Lent,
    LimitReport,
    Loan,
    Totals,
    Wishes,
    add_totals,
    cells_of,
    rows_of,
)
from reconverge.runtime.event_loop import ThreadEventLoop
from reconverge.runtime.owner import Owned
from reconverge.runtime.threads import green_threads
from reconverge_sync.codec import CELL_KINDS, decode_accounts, decode_answer, encode_batch
from reconverge_sync.merge.reading import check_questions, identity_of, read_keys
from reconverge_sync.redis.blocking import BlockingServer
from reconverge_sync.redis.board import RedisBoard
from reconverge_sync.redis.connection import Connection, Place
from reconverge_sync.redis.contracts import (
    GET,
    KEEP,
    PUT,
    SWAP,
    by_shard,
    missing_in,
    page_in,
    shard_of,
    was_swapped,
)
from reconverge_sync.redis.diagnosis.checks import KEEPS_ALL
from reconverge_sync.redis.diagnosis.diagnose import RedisDiagnosis, RedisTarget
from reconverge_sync.redis.errors import as_unavailable
from reconverge_sync.redis.hints import RedisHints
from reconverge_sync.redis.lending import LEND, WISHES, lend_arguments, read_lent, read_wishes
from reconverge_sync.redis.lua.scripts import run, run_blocking, script, script_of
from reconverge_sync.redis.orders import adopt_loss, drop_cells, erase_step, give_orders, read_data, read_orders
from reconverge_sync.redis.settings import POST, READ, Posted, posted
from reconverge_sync.redis.stored import READ_KEYS, read_shard
from reconverge_sync.redis.usage import RedisUsage

EXCHANGE: Final = script_of("exchange")
MARK_KEYS: Final = script("mark_keys")
_SHARED_KEYS: Final = ("meta", "nodes", "accounts")
CONNECTIONS_MAX: Final = 4
"""The most exchanges of one process that may be in progress at one time; exchanges with further shards wait."""


class Servers(Protocol):
    """Runs commands on the servers that store a hub's shards, for one process and one event loop."""

    async def ask(self, shard: int, *command: object) -> object:
        """Runs a command on the server of a shard, and returns the reply. Raises the client's errors."""
        ...

    async def close(self) -> None:
        """Closes all connections."""
        ...


class OneServer:
    """A single server, which stores all shards. Implements `Servers`."""

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self.client = client
        self._turns = asyncio.Semaphore(CONNECTIONS_MAX)

    async def ask(self, shard: int, *command: object) -> object:  # noqa: ARG002  # it has all of them
        async with self._turns:
            return await self.client.execute_command(*command)

    async def close(self) -> None:
        await self.client.aclose()


class RedisHub:
    """A hub on one Redis (6.2 or later). `reconverge.Hub` describes its promises.

    Beyond these: the client's own retries are off, because they would count twice; one script merges everything, and
    checks all of a batch before it writes; passwords appear in no message, traceback or repr.

    A user for the hub alone needs only these rights, for the namespace `shop` (and `+select` for a database other than
    0):

        ACL SETUSER shop on >PASSWORD resetkeys ~shop:* resetchannels -@all +eval +evalsha
            +hget +hmget +hgetall +hset +hdel +del +pexpire +pttl +time

    Args:
        url: `redis://[user[:password]@]host[:port][/db]`, `rediss://` for TLS, or `redis+unix:///path[?db=0]`; `valkey`
            in place of `redis` means the same. As query: `db`, and for TLS `ssl_ca_certs`, `ssl_certfile`,
            `ssl_keyfile`, `ssl_check_hostname` and `ssl_cert_reqs`.
        settings: the namespace, and the time that an exchange may take.
        shards: the number of independent parts of the keys; all nodes must agree.
        clock: the source of time in place of the server's clock; for tests.
        new_name: makes a name for a generation of the server's data, if they begin with the batch that is sent.
        certainly_new: returns whether it is certain, when data begin, that no node holds allowances from before.

    Raises:
        InvalidSetting: the URL cannot be used.
    """

    def __init__(
        self,
        url: str,
        settings: HubSettings,
        *,
        shards: int = 1,
        clock: Clock | None = None,
        new_name: Callable[[], str] = lambda: token_hex(8),
        certainly_new: Callable[[], bool] = lambda: False,
    ) -> None:
        self._connection = self._read(url)
        if settings.credentials is not None:
            self._connection.log_in_by(settings.credentials)
        self._shown = redacted(url)
        self._settings = settings
        self._shards = shards
        self._clock = clock
        self._new_name = new_name
        self._certainly_new = certainly_new
        self._per_loop: Owned[Servers] = Owned(self._open)
        self._posted = Posted()
        self._index = Posted()

    def _read(self, url: str) -> Connection:
        return Connection(url)

    def _open(self) -> Servers:
        loop = asyncio.get_running_loop()
        alone = isinstance(loop, ThreadEventLoop) and not green_threads()
        if alone and self._shards == 1 and self._connection.may_block:
            timeout_s = self._settings.timeout_s
            return BlockingServer(lambda: self._connection.blocking(timeout_s), timeout_s)
        return OneServer(self._connection.client(self._settings.timeout_s, connections_max=CONNECTIONS_MAX))

    @property
    def shards(self) -> int:
        return self._shards

    async def exchange(self, batch: Batch) -> Answer:
        return await self._exchange(self._settings.namespace, batch)

    def ready_to_block(self) -> bool:
        server = self._per_loop.thing
        return isinstance(server, BlockingServer) and server.ready()

    def exchange_blocking(self, batch: Batch, turn: Callable[[], None]) -> Answer:
        server = self._per_loop.thing
        assert isinstance(server, BlockingServer)

        def call(*command: object) -> object:
            try:
                return server.talk(turn, *command)
            except Exception as error:  # noqa: BLE001  # as in `_call`
                problem = self._as_problem(error)
            raise problem

        keys, arguments = self._command(self._settings.namespace, batch)
        return decode_answer(run_blocking(call, EXCHANGE, len(keys), *keys, *arguments))

    async def _exchange(self, namespace: str, batch: Batch) -> Answer:
        keys, arguments = self._command(namespace, batch)
        return decode_answer(await self._run(batch.shard, len(keys), *keys, *arguments))

    def _command(self, namespace: str, batch: Batch) -> tuple[list[bytes], list[bytes]]:
        """Returns the Redis keys and the arguments of the script of the merge rule, for a batch."""
        arguments = [*encode_batch(batch, self._new_name(), certainly_new=self._certainly_new())]
        if self._clock is not None:
            arguments.append(b"%d" % (self._clock.wall_ns() // MICROSECOND_NS))
        return _keys(namespace, batch), arguments

    async def totals(self) -> dict[str, Totals]:
        sums: dict[str, Totals] = {}
        for shard in range(self._shards):
            key = f"{_prefix(self._settings.namespace, shard)}accounts"
            accounts: Any = await self._call("HGETALL", key, shard=shard)
            add_totals(sums, decode_accounts(accounts))
        return sums

    async def post(self, payload: bytes, *, keep_s: float) -> None:
        await self._call("EVAL", POST, 1, self._key("settings"), payload, token_hex(8), _milliseconds(keep_s))

    async def read(self, *, bytes_max: int) -> bytes | None:
        """Returns the published settings; None if there are none. Unchanged settings are not transferred again."""
        reply = await self._call("EVAL", READ, 1, self._key("settings"), self._posted.mark, bytes_max + 1)
        self._posted = posted(reply, self._posted)
        return self._posted.payload

    async def read_index(self, *, bytes_max: int) -> bytes | None:
        """Returns the index of the contracts; None if there is none. An unchanged index is not transferred again."""
        reply = await self._call("EVAL", READ, 1, self._key("contracts"), self._index.mark, bytes_max + 1)
        self._index = posted(reply, self._index)
        return self._index.payload

    async def swap_index(self, payload: bytes, *, over: bytes | None, bytes_max: int, keep_s: float) -> bool:
        read = () if over is None else (over,)
        arguments = (payload, token_hex(8), _milliseconds(keep_s), bytes_max + 1, *read)
        return was_swapped(await self._call("EVAL", SWAP, 1, self._key("contracts"), *arguments))

    async def put_page(self, digest: str, payload: bytes, *, keep_s: float) -> None:
        shard = shard_of(digest, self._shards)
        await self._call("EVAL", PUT, 1, self._page_key(digest), payload, _milliseconds(keep_s), shard=shard)

    async def get_page(self, digest: str, *, bytes_max: int) -> bytes | None:
        shard = shard_of(digest, self._shards)
        return page_in(await self._call("EVAL", GET, 1, self._page_key(digest), bytes_max + 1, shard=shard))

    async def keep_pages(self, digests: Sequence[str], *, keep_s: float) -> list[str]:
        """Makes pages expire in `keep_s` seconds, by one command for each shard; returns the missing pages' digests."""
        missing: list[str] = []
        for shard, group in by_shard(digests, self._shards):
            keys = [self._page_key(each) for each in group]
            reply = await self._call("EVAL", KEEP, len(keys), *keys, _milliseconds(keep_s), shard=shard)
            missing += missing_in(reply, group)
        return missing

    def hints(self) -> IndexHints:
        """Returns a listener for hints of changed contracts.

        The user needs the right to SUBSCRIBE to the namespace's channels.
        """
        return RedisHints(self._listening_client, self._key("contracts"), secrets=lambda: self._connection.secrets)

    async def _listening_client(self) -> redis.asyncio.Redis:
        return self._connection.client(self._settings.timeout_s, connections_max=1)

    def _key(self, name: str) -> str:
        """Returns the Redis key for data that a namespace has only once; it is a key of shard 0."""
        return f"{_prefix(self._settings.namespace, 0)}{name}"

    def _page_key(self, digest: str) -> str:
        return f"{_prefix(self._settings.namespace, shard_of(digest, self._shards))}page:{digest}"

    async def wishes(self, shard: int) -> Wishes:
        prefix = _prefix(self._settings.namespace, shard)
        reply = await self._call("EVAL", WISHES, 2, f"{prefix}meta", f"{prefix}nodes", self._given_time(), shard=shard)
        return read_wishes(reply)

    async def lend(self, shard: int, lender: str, sequence: int, loans: Sequence[Loan]) -> Lent:
        """Stores what the region `lender` lends to cells of this hub, at most 256 at a time.

        Returns for each loan how much of it the nodes of this region may hold.
        """
        prefix = _prefix(self._settings.namespace, shard)
        cells, arguments = lend_arguments(lender, sequence, loans)
        arguments[2] = self._given_time()
        keys = [f"{prefix}meta", *(prefix + cell for cell in cells)]
        return read_lent(await self._call("EVAL", LEND, len(keys), *keys, *arguments, shard=shard), loans=len(loans))

    async def read_keys(self, shard: int, questions: Sequence[KeyQuestion]) -> KeyReadings:
        check_questions(questions)
        prefix = _prefix(self._settings.namespace, shard)
        cells = [f"{prefix}{_cells_of(limit)}{key}".encode() for limit, key in questions]
        keys = (f"{prefix}meta", f"{prefix}nodes", *cells)
        reply = await self._call("EVAL", READ_KEYS, len(keys), *keys, self._given_time(), shard=shard)
        stored, hub_us = read_shard(reply, [identity_of(limit, key) for limit, key in questions])
        return read_keys(stored, questions, hub_us)

    async def data(self, shard: int) -> HubData:
        return await read_data(self._asking(shard), _prefix(self._settings.namespace, shard), self._given_time())

    async def adopt(self, shard: int, generation: str) -> Adoption:
        """Ends a shard's wait after a loss of data; returns the outcome. The user also needs the right to SCAN."""
        prefix = _prefix(self._settings.namespace, shard)
        return await adopt_loss(self._asking(shard), prefix, generation, self._given_time())

    async def order_erasure(self, marks: Sequence[str]) -> int:
        return await give_orders(self._asking(0), self._key("erasures"), marks, self._given_time())

    async def erasures(self, since_us: int) -> Erasures:
        """Returns the orders to erase identities that were given after `since_us`.

        If there are none, the server reads only one number.
        """
        return await read_orders(self._asking(0), self._key("erasures"), since_us, self._given_time())

    async def drop_keys(self, shard: int, questions: Sequence[KeyQuestion]) -> int:
        check_questions(questions)
        prefix = _prefix(self._settings.namespace, shard)
        cells = [f"{prefix}{_cells_of(limit)}{key}".encode() for limit, key in questions]
        return (await drop_cells(self._asking(shard), prefix, cells, self._given_time()))[1]

    async def erase(self, shard: int, identity: str, names: Sequence[str], *, cursor: int = 0) -> Erased:
        """Takes one step in erasing an identity, and returns its result. The user also needs the right to SCAN."""
        prefix = _prefix(self._settings.namespace, shard)
        return await erase_step(self._asking(shard), prefix, identity, names, cursor, self._given_time())

    async def mark_keys(self, mark: str, *, keep_s: float, limit: str = "") -> str:
        reply = await self._call("EVAL", MARK_KEYS, 1, self._key(f"keymark:{limit}"), mark, _milliseconds(keep_s))
        return str(reply, "utf-8", "replace") if isinstance(reply, bytes) else mark

    async def evicts(self) -> str:
        reply = await self._call("INFO", "memory")
        found: dict[str, Any] = {}
        if isinstance(reply, dict):
            found = reply
        elif isinstance(reply, bytes):  # the connection of a thread that blocks parses no reply
            for line in reply.decode("utf-8", "replace").splitlines():
                name, _, value = line.partition(":")
                found[name] = value
        policy, most = found.get("maxmemory_policy", KEEPS_ALL), int(found.get("maxmemory", 0))
        return "" if policy == KEEPS_ALL or most == 0 else f"maxmemory-policy {policy} and maxmemory {most}"

    async def watch(self, *, keep_s: float) -> None:
        await self._board.watch(keep_s)

    async def watched_s(self) -> float:
        return await self._board.watched_s()

    async def leave_snapshot(self, name: str, payload: bytes, *, keep_s: float) -> bool:
        return await self._board.leave(name, payload, keep_s)

    async def snapshots(self) -> Mapping[str, bytes]:
        return await self._board.snapshots()

    @property
    def _board(self) -> RedisBoard:
        return RedisBoard(self._asking(0), _prefix(self._settings.namespace, 0), self._given_time())

    def _asking(self, shard: int) -> Callable[..., Awaitable[object]]:
        """Returns a function that runs commands on the server of a shard, and raises HubUnavailable."""
        return partial(self._call, shard=shard)

    def _given_time(self) -> str:
        """Returns a test's time for a script, in microseconds; without a test's clock "", for the server's own time."""
        return "" if self._clock is None else str(self._clock.wall_ns() // MICROSECOND_NS)

    @property
    def usage(self) -> RedisUsage:
        return RedisUsage(
            self._call,
            lambda shard: _prefix(self._settings.namespace, shard),
            shards=self._shards,
            clock=self._clock,
        )

    async def diagnose(self) -> Diagnosis:
        client = self._connection.client(self._settings.timeout_s, connections_max=1)
        try:
            return await RedisDiagnosis(self._target(client=client)).run()
        finally:
            await client.aclose()

    def _target(
        self, place: Place | None = None, *, client: redis.asyncio.Redis, shard: int = 0, clustered: bool = False
    ) -> RedisTarget:
        """Returns a description of a server to be diagnosed, by default of the server in the URL."""
        namespace = self._settings.namespace
        scratch = scratch_namespace(namespace)
        trial = TRIAL._replace(shard=shard)

        async def exchange(batch: Batch) -> Answer:
            return await self._exchange(scratch, batch._replace(shard=shard))

        return RedisTarget(
            client=client,
            address=self._connection.address if place is None else self._connection.address_of(place),
            namespace=namespace,
            script=EXCHANGE.text,
            keys=[key.decode() for key in _keys(namespace, trial)],
            scratch_keys=[key.decode() for key in _keys(scratch, trial)],
            exchange=exchange,
            clustered=clustered,
        )

    async def close(self) -> None:
        servers = self._per_loop.take()
        if servers is not None:
            await servers.close()

    async def _run(self, shard: int, keys: int, *keys_and_arguments: bytes) -> object:
        """Runs the script of the merge rule, and returns the reply; the first `keys` arguments are Redis keys."""
        return await run(self._asking(shard), EXCHANGE, keys, *keys_and_arguments)

    async def _call(self, *command: object, shard: int = 0) -> object:
        try:
            return await self._per_loop.get().ask(shard, *command)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001  # with any error of the client this exchange has failed
            problem = self._as_problem(error)
        # Raised outside of the `except`: the client's traceback would show the password to a tool that prints locals.
        raise problem

    def _as_problem(self, error: Exception) -> HubUnavailable:
        """Returns an error of the client as HubUnavailable, with no traceback and no secrets."""
        if isinstance(error, HubUnavailable):
            return error.with_traceback(None)
        problem = as_unavailable(error, secrets=self._connection.secrets)
        problem.__cause__ = error if isinstance(error, NoScriptError) else None
        return problem

    @property
    def namespace(self) -> str:
        """Returns the namespace whose data this object reads and writes."""
        return self._settings.namespace

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._shown!r}, namespace={self._settings.namespace!r})"


def _milliseconds(keep_s: float) -> int:
    return max(1, round(keep_s * 1000))


def _prefix(namespace: str, shard: int) -> str:
    # The braces make one hash slot of a shard; neither the namespace nor a limit's name can contain any.
    return f"{namespace}:{{{shard}}}:"


def _keys(namespace: str, batch: Batch) -> list[bytes]:
    prefix = _prefix(namespace, batch.shard)
    prefixes = [f"{prefix}{_cells_of(limit)}".encode() for limit in batch.limits]
    cells = rows_of(batch.cells)
    if cells is None:
        names = [prefixes[cell.limit] + cell.key.encode() for cell in batch.cells]
    else:
        names = cells.names(prefixes)
    return [f"{prefix}{name}".encode() for name in _SHARED_KEYS] + names


def _cells_of(limit: LimitReport) -> str:
    """Returns the text with which, after the shard's prefix, the Redis keys of a limit's cells begin."""
    name, counted, window_us, variant = cells_of(limit)
    return f"c{SCHEMA_VERSION}:{name}:{CELL_KINDS[counted]}:{window_us}{variant}:"


def open_redis(url: str, settings: HubSettings) -> RedisHub:
    """Returns the hub of a URL that begins with `redis://`, `rediss://`, `redis+unix://` or their `valkey` forms."""
    return RedisHub(url, settings)
