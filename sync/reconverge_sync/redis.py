"""A hub on one Redis: the merge rule as a script, one round trip for each batch."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Callable
from functools import partial
from hashlib import sha1
from importlib.resources import files
from secrets import token_hex
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError

from reconverge.clock import MICROSECOND_NS, Clock
from reconverge.diagnosis import Diagnosis
from reconverge.errors import HubUnavailable, InvalidSetting
from reconverge.hubs import HubSettings, redacted
from reconverge.report import SCHEMA_VERSION, Answer, Batch, LimitReport, Rows, Totals
from reconverge.trial import TRIAL, scratch_namespace
from reconverge_sync.codec import CELL_KINDS, decode_accounts, decode_answer, encode_batch
from reconverge_sync.redis_diagnosis import RedisDiagnosis, RedisPatient
from reconverge_sync.redis_errors import as_unavailable
from reconverge_sync.redis_failure import Address
from reconverge_sync.wire import bulk, bulks, packed, sends_packed

SCRIPT: Final = files("reconverge_sync").joinpath("exchange.lua").read_bytes()
SCRIPT_SHA: Final = sha1(SCRIPT, usedforsecurity=False).hexdigest()
_BY_SHA: Final = bulks((b"EVALSHA", SCRIPT_SHA.encode()))
_BY_TEXT: Final = bulks((b"EVAL", SCRIPT))
_SHARED_KEYS: Final = ("meta", "nodes", "accounts")
DEFAULT_PORT: Final = 6379
SCHEMES: Final = ("redis", "rediss", "redis+unix")
CONNECT_SHARE: Final = 0.5
"""How much of an exchange's time connecting may take."""
CONNECTIONS_MAX: Final = 4
"""So many exchanges of one process are under way at once; those with further shards wait for their turn."""

_inherited: list[redis.asyncio.Redis] = []
"""Clients of the process that this one is a fork of. Taking them apart would make the epoll that both share forget its
connections: it would hear nothing any more."""


class RedisHub:
    """Nodes meet in one Redis (6.2 or later). See `reconverge.Hub` for what it promises.

    Beyond that: the client's own retries are off, because they count twice; everything is merged by one script, which
    checks all of a batch before it writes; passwords appear in no message, traceback or repr.

    A user of its own needs no more than this, for the namespace `shop` (and `+select` for another database than 0):

        ACL SETUSER shop on >PASSWORD resetkeys ~shop:* resetchannels -@all +eval +evalsha
            +hget +hmget +hgetall +hset +hdel +del +pexpire +pttl +time

    Args:
        url: `redis://[user[:password]@]host[:port][/db]`, `rediss://` for TLS, or `redis+unix:///path[?db=0]`. As
            query: `db`, and for TLS `ssl_ca_certs`, `ssl_certfile`, `ssl_keyfile`, `ssl_check_hostname` and
            `ssl_cert_reqs`.
        settings: the namespace, and the time that an exchange may take.
        shards: into how many independent parts to divide the keys; all nodes must agree.
        clock: for tests; the time comes from there instead of from the server.
        new_name: names an incarnation of the server's data, if they begin with the batch at hand.
        certainly_new: whether it is certain then that no node can hold lines from before.

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
        self._connection = _Connection.of(url)
        self._shown = redacted(url)
        self._settings = settings
        self._shards = shards
        self._clock = clock
        self._new_name = new_name
        self._certainly_new = certainly_new
        self._client: redis.asyncio.Redis | None = None
        self._client_of: tuple[int, asyncio.AbstractEventLoop] | None = None
        self._turns = asyncio.Semaphore(CONNECTIONS_MAX)

    @property
    def shards(self) -> int:
        """See `Hub.shards`."""
        return self._shards

    async def exchange(self, batch: Batch) -> Answer:
        """See `Hub.exchange`."""
        return await self._exchange(self._settings.namespace, batch)

    async def _exchange(self, namespace: str, batch: Batch) -> Answer:
        shared, rows = encode_batch(batch, self._new_name(), certainly_new=self._certainly_new())
        arguments = [shared, rows]
        if self._clock is not None:
            arguments.append(b"%d" % (self._clock.wall_ns() // MICROSECOND_NS))
        keys = len(_SHARED_KEYS) + len(batch.cells)
        parts = (bulk(b"%d" % keys), _bulks_of_keys(namespace, batch), bulks(arguments))
        return decode_answer(await self._run(keys + len(arguments), *parts))

    async def totals(self) -> dict[str, Totals]:
        """See `Hub.totals`."""
        sums: dict[str, Totals] = {}
        for shard in range(self._shards):
            accounts: Any = await self._call("HGETALL", f"{_prefix(self._settings.namespace, shard)}accounts")
            for name, totals in decode_accounts(accounts).items():
                known = sums.get(name, Totals(0, 0))
                sums[name] = Totals(known.charged + totals.charged, known.refunded + totals.refunded)
        return sums

    async def diagnose(self) -> Diagnosis:
        """See `reconverge.diagnosis.Diagnosable`."""
        namespace = self._settings.namespace
        scratch = scratch_namespace(namespace)
        patient = RedisPatient(
            client=self._connected(),
            address=self._connection.address,
            namespace=namespace,
            script=SCRIPT,
            keys=[key.decode() for key in _keys(namespace, TRIAL)],
            scratch_keys=[key.decode() for key in _keys(scratch, TRIAL)],
            exchange=partial(self._exchange, scratch),
        )
        return await RedisDiagnosis(patient).run()

    async def close(self) -> None:
        """See `Hub.close`."""
        client, self._client = self._client, None
        if client is not None and self._client_of == _whereabouts():
            await client.aclose()
        elif client is not None:
            self._leave_alone(client)

    async def _run(self, arguments: int, *parts: bytes) -> object:
        """Run the script with so many keys and arguments; their number comes first among the parts."""
        try:
            return await self._call("EVALSHA", packed(3 + arguments, _BY_SHA, *parts))
        except HubUnavailable as error:
            if not isinstance(error.__cause__, NoScriptError):
                raise
        # The server has forgotten the script, or never had it; nothing was applied, and EVAL makes it known again.
        return await self._call("EVAL", packed(3 + arguments, _BY_TEXT, *parts))

    async def _call(self, *command: object) -> object:
        problem: HubUnavailable | None = None
        try:
            client = self._connected()
            async with self._turns:
                return await client.execute_command(*command)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001  # whatever the client raises, this exchange has failed
            problem = as_unavailable(error, secrets=self._connection.secrets)
            problem.__cause__ = error if isinstance(error, NoScriptError) else None
        # Raised out here: the client's own traceback shows the password to whoever prints locals.
        raise problem

    def _connected(self) -> redis.asyncio.Redis:
        """The client of this process and this loop; one that belongs to another is left alone."""
        here = _whereabouts()
        if self._client is None or self._client_of != here:
            if self._client is not None:
                self._leave_alone(self._client)
            self._client = self._connection.client(self._settings.timeout_s)
            self._client_of = here
            self._turns = asyncio.Semaphore(CONNECTIONS_MAX)
        return self._client

    def _leave_alone(self, client: redis.asyncio.Redis) -> None:
        """Forget a client of another loop; but keep the parent's, if this process is a fork of its."""
        if self._client_of is not None and self._client_of[0] != os.getpid():
            _inherited.append(client)

    def __repr__(self) -> str:
        return f"RedisHub({self._shown!r}, namespace={self._settings.namespace!r})"


def _prefix(namespace: str, shard: int) -> str:
    # The braces make one hash slot of a shard; neither the namespace nor a limit's name can contain any.
    return f"{namespace}:{{{shard}}}:"


def _keys(namespace: str, batch: Batch) -> list[bytes]:
    prefixes = _prefixes(namespace, batch)
    return _shared_keys(namespace, batch) + [prefixes[cell.limit] + cell.key.encode() for cell in batch.cells]


def _bulks_of_keys(namespace: str, batch: Batch) -> bytes:
    """The same, as they travel."""
    if isinstance(batch.cells, Rows):
        return bulks(_shared_keys(namespace, batch)) + batch.cells.bulks(_prefixes(namespace, batch))
    return bulks(_keys(namespace, batch))


def _shared_keys(namespace: str, batch: Batch) -> list[bytes]:
    prefix = _prefix(namespace, batch.shard)
    return [f"{prefix}{name}".encode() for name in _SHARED_KEYS]


def _prefixes(namespace: str, batch: Batch) -> list[bytes]:
    prefix = _prefix(namespace, batch.shard)
    return [f"{prefix}{_cells_of(limit)}".encode() for limit in batch.limits]


def _cells_of(limit: LimitReport) -> str:
    """What is common to the keys of a limit's cells: all that tells them from those of another one."""
    return f"c{SCHEMA_VERSION}:{limit.name}:{CELL_KINDS[limit.algorithm]}:{limit.window_us}{limit.variant}:"


def _anonymous() -> dict[str, Any]:
    """The options by which the client does not introduce itself: a user without that right could not connect."""
    options = inspect.signature(redis.asyncio.Redis.__init__).parameters
    return {"driver_info": None} if "driver_info" in options else {"lib_name": None, "lib_version": None}


_ANONYMOUS: Final = _anonymous()


_TLS_OPTIONS: Final = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_check_hostname", "ssl_cert_reqs")
_TLS_REQUIREMENTS: Final = ("none", "optional", "required")
_UNREADABLE: Final = (
    "cannot be read: a port is a number from 1 to 65535, "
    "and in a password / ? # [ ] @ are written %2F %3F %23 %5B %5D %40"
)


class _Connection:
    """Where the server is and how to log in; shows neither."""

    __slots__ = ("_options",)

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options

    @classmethod
    def of(cls, url: str) -> _Connection:
        try:
            parts = urlsplit(url)
            port = DEFAULT_PORT if parts.port is None else parts.port
            if port == 0:
                raise ValueError("port 0")
        except ValueError:
            # No cause: its message may show a part of the password.
            raise InvalidSetting("hub", redacted(url), _UNREADABLE) from None
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        options: dict[str, Any] = {"db": query.pop("db", "0")}
        if parts.scheme == "redis+unix":
            if not parts.path:
                raise InvalidSetting("hub", redacted(url), "lacks the path of the socket")
            options["unix_socket_path"] = unquote(parts.path)
        else:
            options |= {"host": parts.hostname or "localhost", "port": port}
            if parts.path.strip("/"):
                options["db"] = parts.path.strip("/")
            if parts.scheme == "rediss":
                options["ssl"] = True
                options |= {name: query.pop(name) for name in list(query) if name in _TLS_OPTIONS}
                required = options.setdefault("ssl_cert_reqs", "required")
                if required not in _TLS_REQUIREMENTS:
                    known = ", ".join(_TLS_REQUIREMENTS)
                    raise InvalidSetting("hub", redacted(url), f"has an ssl_cert_reqs that is none of {known}")
                # Said in any case: redis-py 5 accepts any certificate for any name by default.
                checked = options.get("ssl_check_hostname", str(required != "none")).lower()
                options["ssl_check_hostname"] = checked in ("1", "true", "yes") and required != "none"
        if not options["db"].isdecimal():
            raise InvalidSetting("hub", redacted(url), "names a database, after the last /, that is no number")
        if query:
            raise InvalidSetting("hub", redacted(url), f"has options that are not known: {', '.join(sorted(query))}")
        options["db"] = int(options["db"])
        options["username"] = unquote(parts.username) if parts.username else None
        options["password"] = unquote(parts.password) if parts.password else None
        return cls(options)

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not be shown, wherever it turns up; the longest first, as one may be part of another."""
        options = self._options
        return tuple(sorted(filter(None, (options["password"], options["username"])), key=len, reverse=True))

    @property
    def address(self) -> Address:
        """Where it leads, without what must not be shown."""
        options = self._options
        host = options.get("host", "")
        return Address(
            place=options.get("unix_socket_path") or f"{f'[{host}]' if ':' in host else host}:{options['port']}",
            host=host,
            encrypted="ssl" in options,
            database=options["db"],
            has_password=bool(options["password"]),
        )

    def client(self, timeout_s: float) -> redis.asyncio.Redis:
        return sends_packed(
            redis.asyncio.Redis(
                **self._options,
                retry=Retry(NoBackoff(), 0),
                retry_on_error=[],
                socket_timeout=timeout_s,
                socket_connect_timeout=timeout_s * CONNECT_SHARE,
                health_check_interval=0,
                max_connections=CONNECTIONS_MAX,
                protocol=2,
                **_ANONYMOUS,
            )
        )

    def __repr__(self) -> str:
        return "<connection>"


def _whereabouts() -> tuple[int, asyncio.AbstractEventLoop]:
    return os.getpid(), asyncio.get_running_loop()


def open_redis(url: str, settings: HubSettings) -> RedisHub:
    """The factory for `redis://`, `rediss://` and `redis+unix://`."""
    return RedisHub(url, settings)
