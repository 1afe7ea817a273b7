"""Classifies the failures of a Redis, and has for each kind a finding and a remedy in plain words."""

from __future__ import annotations

import errno
import socket
import ssl
from dataclasses import dataclass
from typing import Final, NamedTuple

from redis import exceptions

from reconverge.hub.diagnosis import Finding, Level
from reconverge_sync.client.tls import UnusableFile
from reconverge_sync.redis.errors import as_unavailable

REACHED: Final = "reached"
LOGIN: Final = "login"
SERVER: Final = "server"
EXCHANGE: Final = "exchange"


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a server without secrets: its place, its database, and whether it has TLS and a password."""

    place: str
    """`host:port`, or the path of a unix socket."""
    host: str
    """The host's name; empty for a unix socket."""
    encrypted: bool
    database: int
    has_password: bool


class RedisFailure(Exception):
    """Raised when a command to a Redis has failed. Unlike a client's exception, it shows no secrets."""

    def __init__(self, kind: str, text: str) -> None:
        self.kind = kind
        """The kind of failure: a kind of `HubUnavailable`, or a finer one."""
        self.text = "".join(letter if letter.isprintable() else " " for letter in text)
        super().__init__(f"{kind}: {self.text}")


def as_failure(error: Exception, *, encrypted: bool) -> RedisFailure:
    """Returns a client's exception as a RedisFailure, whose kind is more exact than the kind of a HubUnavailable."""
    text = str(error)[:200]
    kind = as_unavailable(error).kind
    origin = error.__context__
    if isinstance(error, exceptions.InvalidResponse):
        return RedisFailure("not-redis", text)
    if (cause := _of_origin(origin, text)) is not None:
        return cause
    if kind == "tls":
        return RedisFailure(_tls_kind(text), text)
    if kind == "connection" and encrypted:
        return RedisFailure("connection-tls", text)
    if kind == "timeout" and "connecting" in text:
        return RedisFailure("connect-timeout-tls" if encrypted else "connect-timeout", text)
    if kind == "auth":
        return RedisFailure(_login_kind(text), text)
    if kind == "script":
        return RedisFailure(_reply_kind(text), text.partition(", with args")[0])
    return RedisFailure(kind, text)


def _of_origin(origin: BaseException | None, text: str) -> RedisFailure | None:
    """Returns an error of the operating system or of TLS as a RedisFailure; None for any other error."""
    if isinstance(origin, UnusableFile):
        return RedisFailure("no-certificate-file", str(origin))
    if isinstance(origin, ssl.SSLCertVerificationError):
        return RedisFailure(_certificate_kind(origin.verify_code), origin.verify_message or text)
    if isinstance(origin, socket.gaierror | UnicodeError):
        return RedisFailure("dns", text)
    if isinstance(origin, FileNotFoundError):
        return RedisFailure("no-socket", text)
    if isinstance(origin, PermissionError):
        return RedisFailure("forbidden", text)
    if isinstance(origin, OSError) and origin.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH):
        return RedisFailure("unreachable", text)
    return None


def _certificate_kind(code: int) -> str:
    # OpenSSL's X509_V_ERR_*: no issuer is known, a chain without a trusted root; another name, another address.
    if code in (2, 18, 19, 20, 21):
        return "unknown-authority"
    return "certificate-name" if code in (62, 64) else "certificate"


def _tls_kind(text: str) -> str:
    if "CERTIFICATE_REQUIRED" in text:
        return "client-certificate"
    return "no-tls" if "WRONG_VERSION" in text or "RECORD_LAYER" in text else "tls"


def _login_kind(text: str) -> str:
    if "without any password configured" in text or "no password is set" in text:
        return "needless-password"
    return "no-password" if "already authenticated" in text or "Authentication required" in text else "wrong-password"


def _reply_kind(text: str) -> str:
    if text.lower().startswith("unknown command"):
        return "unknown-command"
    if "cluster support disabled" in text:
        return "no-cluster"
    return "database" if "DB index" in text or "SELECT is not allowed" in text else "script"


_ESCAPES: Final = "in a URL, % / ? # @ are written %25 %2F %3F %23 %40"
_CONSIDER_PROXY: Final = "If it is a proxy, check what is behind it"
_OUR_CERTIFICATE: Final = "?ssl_certfile=/path/to/client.pem&ssl_keyfile=/path/to/client.key"


class _Advice(NamedTuple):
    """For one kind of failure: the name of the check that fails, the text of the finding, and the remedy."""

    check: str
    fact: str
    remedy: str


_ADVICE: Final[dict[str, _Advice]] = {
    "refused": _Advice(
        REACHED,
        "nothing listens at {place} (connection refused)",
        "Start Redis there, or correct host and port in the URL. If it does run, it may not listen on an address "
        "that this machine can reach: see `bind` in its configuration, or the published ports of its container.",
    ),
    "dns": _Advice(
        REACHED,
        "there is no address for the host name {host}",
        "Correct the name in the URL. If it is right, this machine cannot look it up: see its /etc/resolv.conf.",
    ),
    "unreachable": _Advice(
        REACHED,
        "there is no route from here to {place}",
        "Check this machine's network and routing, and whether the address is right.",
    ),
    "connect-timeout": _Advice(
        REACHED,
        "{place} does not accept a connection in time",
        "Something on the way drops the packets: check firewalls, security groups and routing between this machine "
        "and the server, and whether that is up at all.",
    ),
    "connect-timeout-tls": _Advice(
        REACHED,
        "{place} does not set up a TLS connection in time",
        "Either that port speaks no TLS (then the URL begins with redis:// instead of rediss://), or something on the "
        "way drops the packets: check firewalls and routing, and whether the server is up.",
    ),
    "timeout": _Advice(
        REACHED,
        "{place} accepts the connection, but does not answer in time",
        f"The server hangs: look for a stopped process, for swapping, and for a slow command (SLOWLOG GET). "
        f"{_CONSIDER_PROXY}.",
    ),
    "connection": _Advice(
        REACHED,
        "{place} breaks the connection off",
        "If the server wants TLS, the URL must begin with rediss:// instead of redis://; otherwise its log says why. "
        f"{_CONSIDER_PROXY}.",
    ),
    "connection-tls": _Advice(
        REACHED,
        "{place} breaks the TLS connection off",
        "If the server wants a certificate from us too, name it at the end of the URL; otherwise its log says why. "
        f"{_CONSIDER_PROXY}.\n  {_OUR_CERTIFICATE}",
    ),
    "not-redis": _Advice(
        REACHED,
        "the server at {place} is not Redis",
        "Correct host and port in the URL.",
    ),
    "no-socket": _Advice(
        REACHED,
        "there is no socket {place}",
        "Start Redis, or correct the path: it is `unixsocket` in the server's configuration.",
    ),
    "forbidden": _Advice(
        REACHED,
        "this user may not open {place}",
        "Run as a user with access to it, or widen `unixsocketperm` in the server's configuration.",
    ),
    "no-certificate-file": _Advice(
        REACHED,
        "{text}",
        "Correct the path in the URL, or mount the file before the process starts.",
    ),
    "unknown-authority": _Advice(
        REACHED,
        "TLS: the server's certificate is from no authority that this machine trusts ({text})",
        "Name the authority that has signed the server's certificate, at the end of the URL:\n"
        "  ?ssl_ca_certs=/path/to/ca.pem",
    ),
    "certificate-name": _Advice(
        REACHED,
        "TLS: the server's certificate is for another name ({text})",
        "Use in the URL a host name that the certificate is for, or have one issued for {host}.",
    ),
    "certificate": _Advice(
        REACHED,
        "TLS: the server's certificate is not valid ({text})",
        "Renew the certificate; and check this machine's clock, which decides what has expired.",
    ),
    "client-certificate": _Advice(
        REACHED,
        "TLS: the server wants a certificate from us too",
        f"Name ours at the end of the URL, or set `tls-auth-clients no` on the server:\n  {_OUR_CERTIFICATE}",
    ),
    "no-tls": _Advice(
        REACHED,
        "{place} does not speak TLS",
        "Begin the URL with redis:// instead of rediss://, or use the server's TLS port.",
    ),
    "tls": _Advice(
        REACHED,
        "TLS failed: {text}",
        "Check that the port is the server's TLS port, and which versions and ciphers it accepts.",
    ),
    "too-many-clients": _Advice(
        REACHED,
        "the server takes no more connections (maxclients is reached)",
        "See which clients hold them, and stop what leaks them; or raise `maxclients`:\n  redis-cli CLIENT LIST",
    ),
    "denied": _Advice(
        REACHED,
        "the server answers only its own machine (protected mode)",
        "Give it a user with a password and put these into the URL; do not just switch protected mode off.",
    ),
    "no-password": _Advice(
        LOGIN,
        "the server wants a password, and the URL has none",
        f"Put it into the URL as redis://:PASSWORD@HOST or redis://USER:PASSWORD@HOST; {_ESCAPES}.",
    ),
    "wrong-password": _Advice(
        LOGIN,
        "the server knows no such user with that password",
        "Redis does not say which of them is wrong. Without a user in the URL, the user is `default`; a user may also "
        f"be switched off (an administrator sees that in ACL LIST); and {_ESCAPES}.",
    ),
    "needless-password": _Advice(
        LOGIN,
        "the URL has a password, but the server's default user has none",
        "Take the password out of the URL, or name the user that it belongs to: redis://USER:PASSWORD@HOST. "
        "Or correct the host, if another server is meant.",
    ),
    "database": _Advice(
        LOGIN,
        "the server has no database {database}",
        "Use a smaller number in the URL (a server has 16 by default, in cluster mode only 0).",
    ),
    "loading": _Advice(
        SERVER,
        "the server is loading its data and answers nothing else",
        "Wait until it has; meanwhile the agents decide from memory. It says how long that will take:\n"
        "  redis-cli INFO persistence",
    ),
    "busy": _Advice(
        SERVER,
        "a script or function does not end and blocks the server",
        "Stop it (if it is a function, with FUNCTION KILL); the script of the agents takes only milliseconds:\n"
        "  redis-cli SCRIPT KILL",
    ),
    "master-down": _Advice(
        SERVER,
        "this is a replica that has lost its master",
        "Point the URL at the master.",
    ),
    "cluster-down": _Advice(
        SERVER,
        "the Redis Cluster is down",
        "Repair the cluster; this command shows the fault:\n  redis-cli CLUSTER INFO",
    ),
    "moving": _Advice(
        SERVER,
        "this is one node of a Redis Cluster, and the agents' keys belong on another ({text})",
        "Begin the URL with redis+cluster:// (rediss+cluster:// with TLS).",
    ),
    "no-cluster": _Advice(
        SERVER,
        "this is a Redis without cluster mode",
        "Begin the URL with redis:// (rediss:// with TLS).",
    ),
    "read-only": _Advice(
        SERVER,
        "this is a read-only replica",
        "Point the URL at the master.",
    ),
    "out-of-memory": _Advice(
        EXCHANGE,
        "the server's memory is full (maxmemory), so that it refuses to write",
        "Raise `maxmemory`, or move other data off this server; what takes the memory:\n"
        "  redis-cli --bigkeys\n  redis-cli INFO memory",
    ),
    "misconfigured": _Advice(
        EXCHANGE,
        "the server refuses to write because it could not save its last snapshot",
        "Its log has the reason; mostly the disk is full, or the directory not writable. A hub needs no snapshots; to "
        "go on without:\n  redis-cli CONFIG SET stop-writes-on-bgsave-error no",
    ),
    "no-replicas": _Advice(
        EXCHANGE,
        "the server refuses to write because too few replicas follow it (min-replicas-to-write)",
        "Bring the replicas back. A hub needs none; to go on without:\n  redis-cli CONFIG SET min-replicas-to-write 0",
    ),
    "permission": _Advice(
        EXCHANGE,
        "the user lacks a permission",
        "Grant the agents' user everything that the documentation lists.",
    ),
    "unknown-command": _Advice(
        SERVER,
        "the server lacks a command that the agent needs ({text})",
        "Undo `rename-command` in its configuration. If it is a proxy, connect to the Redis behind it.",
    ),
}


def finding_of(failure: RedisFailure, address: Address, check: str = EXCHANGE) -> Finding:
    """Returns the finding about a failure, under the check to which its kind belongs, or else under `check`."""
    known = _ADVICE.get(failure.kind)
    if known is None:
        fact, remedy = f"the server answered: {failure.text}", "The server's log may say more."
    else:
        check, fact, remedy = known
    values = {"place": address.place, "host": address.host, "database": address.database, "text": failure.text}
    return Finding(check, Level.PROBLEM, fact.format(**values), remedy.format(**values))
