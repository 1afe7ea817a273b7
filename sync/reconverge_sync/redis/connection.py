"""Reads the addresses of Redis servers and the login from a URL, and makes clients for them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from typing import Any, Final, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

import redis
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.retry import Retry as BlockingRetry

from reconverge.errors import InvalidSetting
from reconverge.hub.registry import Credentials, redacted, split_url
from reconverge_sync.client.tls import SharedContext
from reconverge_sync.client.urls import (
    TLS_OPTIONS,
    UNREADABLE,
    check_login,
    is_number,
    longest_first,
    read_query,
    tls_options,
)
from reconverge_sync.redis.blocking import TimedConnection, timed_kind
from reconverge_sync.redis.diagnosis.advice import Address
from reconverge_sync.redis.login import ChangingLogin
from reconverge_sync.redis.renewing import renew

DEFAULT_PORT: Final = 6379
CONNECT_SHARE: Final = 0.5
"""The fraction of an exchange's time that connecting may take."""
PLACES_MAX: Final = 64
"""The most hosts in a URL, which is more than any fleet needs."""
SOCKETS: Final = ("redis+unix", "valkey+unix")
"""The schemes of URLs with a unix socket. A scheme with valkey means the same as one with redis."""


class Place(NamedTuple):
    """The host and the port at which a server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


class Connection:
    """The servers that a URL names, and the login to them. The repr shows neither the user's name nor the password.

    Args:
        url: `redis://[user[:password]@]host[:port][/db]`, `rediss://` for TLS, or `redis+unix:///path[?db=0]`; `valkey`
            in place of `redis` means the same.
        several: whether the URL may have several hosts, with commas in between.
        default_port: the port of a host without one.
        options: the names of further options that the query may have; `more` has their values.
        serves: whether the path begins with the name of a service; `service` has it.

    Raises:
        InvalidSetting: the URL cannot be used.
    """

    __slots__ = ("_changing", "_encrypted", "_options", "_tls", "more", "places", "service")

    def __init__(
        self,
        url: str,
        *,
        several: bool = False,
        default_port: int = DEFAULT_PORT,
        options: Collection[str] = (),
        serves: bool = False,
    ) -> None:
        def refuse(problem: str) -> InvalidSetting:
            return InvalidSetting("hub", redacted(url), problem)

        try:
            parts = _parts(url)
            login, _, hosts = parts.netloc.rpartition("@")
            places = [_place(host, default_port) for host in (hosts.split(",") if several else [hosts])]
        except ValueError:
            raise refuse(UNREADABLE) from None  # no cause: its message may show a part of the password
        if not several and "," in hosts:
            raise refuse("names several hosts, which only redis+cluster:// and redis+sentinel:// URLs may do; name one")
        if len(places) > PLACES_MAX:
            raise refuse(f"names {len(places)} hosts, and at most {PLACES_MAX} are allowed; leave some out")
        encrypted = parts.scheme.startswith(("rediss", "valkeys"))
        if parts.fragment:
            raise refuse("has a part after #; remove it, or write %23 for a # in a password")
        query = read_query(parts.query, ("db", *options, *(TLS_OPTIONS if encrypted else ())), refuse)
        self.more = {name: query.pop(name) for name in list(query) if name in options}
        self.places = tuple(dict.fromkeys(places))
        self.service = ""
        self._tls: SharedContext | None = None
        self._encrypted: type[Any] | None = None  # the class of its connections, if there is TLS
        database = query.pop("db", "")
        self._options: dict[str, Any] = {"db": database or "0"}
        if parts.scheme in SOCKETS:
            self.places = ()
            self._options["unix_socket_path"] = _socket(hosts, parts.path, refuse)
        else:
            if self._read_path(parts, serves=serves) and database:
                raise refuse("names a database twice, after the last / and as db; leave one of them out")
            if encrypted:
                # Names are checked unless the URL forbids it: redis-py 5 accepts any by default.
                self._options |= {"ssl": True, **(tls := tls_options(query, refuse))}
                self._tls = SharedContext(tls)
        if serves and not self.service:
            raise refuse("lacks the name of the service, as in redis+sentinel://host/mymaster")
        if not is_number(self._options["db"]):
            raise refuse("names a database, after the last / or as db, that is no number; write one, such as 0")
        self._read_login(login)
        self._changing: ChangingLogin | None = None

    def log_in_by(self, credentials: Credentials) -> None:
        """Makes each connection ask `credentials` for the login. Raises InvalidSetting if the URL has a login, too."""
        if self._options["username"] or self._options["password"]:
            raise InvalidSetting("credentials", "***", "is given, and the URL of the hub has a login; leave one out")
        self._changing = ChangingLogin(credentials)

    def _read_login(self, login: str) -> None:
        self._options["db"] = int(self._options["db"])
        user, _, password = login.partition(":")
        self._options["username"] = unquote(user) or None
        self._options["password"] = unquote(password) or None

    def _read_path(self, parts: SplitResult, *, serves: bool) -> bool:
        """Reads the service and the database from a URL's path; returns whether the path names a database."""
        path = parts.path.strip("/")
        if serves:
            service, _, path = path.partition("/")
            self.service = unquote(service)
        if path:
            self._options["db"] = path
        return bool(path)

    @property
    def secrets(self) -> tuple[str, ...]:
        """The texts that no message may show: passwords and users' names, the longest first."""
        options = self._options
        beside = (value for name, value in self.more.items() if name.endswith(("username", "password")))
        changing = () if self._changing is None else self._changing.last
        return longest_first(options["password"], options["username"], *beside, *changing)

    @property
    def address(self) -> Address:
        """The address of the first server, without secrets."""
        return self.address_of(self.places[0] if self.places else None)

    def address_of(self, place: Place | None) -> Address:
        """Returns the address of one server, without secrets; None stands for the server at a unix socket."""
        options = self._options
        return Address(
            place=options["unix_socket_path"] if place is None else str(place),
            host="" if place is None else place.host,
            encrypted="ssl" in options,
            database=options["db"],
            has_password=bool(options["password"] or self._changing),
        )

    def client(
        self, timeout_s: float, *, connections_max: int, place: Place | None = None, **other: Any
    ) -> redis.asyncio.Redis:
        """Returns a client of a server, by default of the URL's first one, that has not connected yet.

        Options in `other` replace the options of the URL.
        """
        client = redis.asyncio.Redis(
            **{**self._settings(timeout_s, place), **other},
            retry=Retry(NoBackoff(), 0),
            max_connections=connections_max,
        )
        if self._tls is not None:
            pool: Any = client.connection_pool
            if self._encrypted is None:
                self._encrypted = _encrypted(pool.connection_class, self._tls)
            pool.connection_class = self._encrypted
        renew(client)
        return client

    @property
    def may_block(self) -> bool:
        """Returns whether `blocking` can make connections. With TLS it cannot: each would make a context of its own."""
        return self._tls is None

    def blocking(self, timeout_s: float) -> TimedConnection:
        """Returns a blocking connection to the URL's first server that has not connected yet; only if `may_block`."""
        client = redis.Redis(**self._settings(timeout_s, None), retry=BlockingRetry(NoBackoff(), 0))
        pool: Any = client.connection_pool
        pool.connection_class = timed_kind(pool.connection_class)
        connection: TimedConnection = pool.make_connection()
        return connection

    def _settings(self, timeout_s: float, place: Place | None) -> dict[str, Any]:
        """Returns the options for a client of either kind that connects to a server, by default the URL's first."""
        where: dict[str, Any] = {}
        if self.places:
            host, port = place or self.places[0]
            where = {"host": host, "port": port}
        return {
            **self._options,
            **where,
            "credential_provider": self._changing,
            "retry_on_error": [],
            "socket_timeout": timeout_s,
            "socket_connect_timeout": timeout_s * CONNECT_SHARE,
            "health_check_interval": 0,
            "protocol": 2,
            **_ANONYMOUS,
        }

    def __repr__(self) -> str:
        return "<connection>"


def _socket(hosts: str, path: str, refuse: Callable[[str], InvalidSetting]) -> str:
    """Returns the path of a unix socket, from the parts of a URL. On a problem, raises the exception by `refuse`."""
    if not path:
        raise refuse("lacks the path of the socket, as in redis+unix:///run/redis.sock")
    if hosts not in ("", "localhost"):
        raise refuse("names a host, and a socket has none; write the whole path after redis+unix://, as in /run/redis")
    return unquote(path)


def _parts(url: str) -> SplitResult:
    """Returns the parts of a URL. Raises ValueError if it cannot be read, or its login is cut off."""
    parts = split_url(url)
    if parts.scheme not in SOCKETS:
        check_login(parts)
    return parts


def _place(host: str, default_port: int) -> Place:
    """Returns the place that a text names by a host and maybe a port. Raises ValueError if it is invalid."""
    parts = urlsplit(f"//{host}")
    port = default_port if parts.port is None else parts.port
    if port == 0 or parts.path or parts.query or parts.fragment:
        raise ValueError("the port must be a number from 1 to 65535, with nothing after it")
    return Place(parts.hostname or "localhost", port)


def _encrypted(kind: type[Any], tls: SharedContext) -> type[Any]:
    """Returns a class like `kind` whose connections use the shared TLS context and make none of their own."""

    async def connect(self: Any) -> None:
        self.ssl_context.context = tls.get()
        await kind._connect(self)  # noqa: SLF001  # the client checks before that whether it has a context

    return type(kind.__name__, (kind,), {"_connect": connect})


def _anonymous() -> dict[str, Any]:
    """Returns options by which the client does not send its own name: a user without that right could not connect."""
    options = inspect.signature(redis.asyncio.Redis.__init__).parameters
    return {"driver_info": None} if "driver_info" in options else {"lib_name": None, "lib_version": None}


_ANONYMOUS: Final = _anonymous()
