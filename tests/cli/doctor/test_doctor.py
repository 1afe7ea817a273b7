"""Whether a hub can be reached and logged in to, the doctor says in words that lead to the mistake."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest

from reconverge.cli.doctor import doctor
from reconverge_sync.redis.diagnosis.advice import as_failure
from tests.support.certificates import Certificates
from tests.support.commands.checked import PASSWORD, check
from tests.support.fixtures.servers import TLSRedis
from tests.support.servers import RedisServer, free_port, wait_until


@pytest.fixture
def little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever never answers need not be waited for so long."""
    monkeypatch.setattr(doctor, "PATIENCE_S", 0.4)


@pytest.fixture
def guarded_redis(own_redis: RedisServer) -> RedisServer:
    """A Redis whose default user has a password."""
    own_redis.command("CONFIG", "SET", "requirepass", PASSWORD)
    return own_redis


@contextmanager
def impostor(answer: bytes) -> Generator[str]:
    """The URL of something that gives its first caller this answer, and hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(answer)

        thread = Thread(target=serve)
        thread.start()
        yield f"redis://127.0.0.1:{server.getsockname()[1]}"
        thread.join()


@contextmanager
def black_hole() -> Generator[str]:
    """The URL of a port that lets no connection come about: its queue is full, and nobody takes anything from it."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server, socket.socket() as one, socket.socket() as two:
        for caller in (one, two):
            caller.setblocking(False)
            caller.connect_ex(server.getsockname())
        yield f"redis://127.0.0.1:{server.getsockname()[1]}"


def test_a_stopped_server_is_refused(own_redis: RedisServer) -> None:
    """Where nothing listens, that is said, with the address, and no other check is made up."""
    own_redis.kill()

    checked = check(own_redis.url)

    assert ["reached"] == checked.at("problem")
    assert f"127.0.0.1:{own_redis.port}" in checked.only("reached")["fact"]
    assert "refused" in checked.only("reached")["fact"]
    assert [] == checked.at("ok")
    assert None is checked.report["round_trip_ms"]
    assert 1 == checked.status


def test_a_paused_server_is_not_taken_for_a_firewall(own_redis: RedisServer, little_patience: None) -> None:
    """A server that accepts and keeps silent hangs; packets that are dropped would not let a connection come about."""
    own_redis.pause()

    checked = check(own_redis.url, "--timeout", "0.1")

    assert ["reached"] == checked.at("problem")
    assert "accepts the connection, but does not answer" in checked.only("reached")["fact"]
    assert "firewall" not in checked.only("reached")["remedy"]


def test_dropped_packets_are_taken_for_a_firewall(little_patience: None) -> None:
    """A server that does not even accept a connection is looked for on the way."""
    with black_hole() as url:
        checked = check(url, "--timeout", "0.1")

    assert "does not accept a connection" in checked.only("reached")["fact"]
    assert "firewall" in checked.only("reached")["remedy"]


def test_an_unknown_host_name_is_said_to_be_unknown() -> None:
    """A name without an address is not called a refusal; no resolver is asked for a name that cannot exist."""
    checked = check("redis://no..where:6379")

    assert "no address for the host name no..where" in checked.only("reached")["fact"]


def test_a_socket_that_does_not_exist_is_named(tmp_path: Path) -> None:
    """The path is shown, and where to find the right one."""
    checked = check(f"redis+unix://{tmp_path}/redis.sock")

    assert f"there is no socket {tmp_path}/redis.sock" == checked.only("reached")["fact"]
    assert "unixsocket" in checked.only("reached")["remedy"]


@pytest.mark.parametrize(
    ("answer", "fact"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "is not Redis"),
        (b"", "breaks the connection off"),
        (b"-DENIED Redis is running in protected mode because...\r\n", "protected mode"),
        (b"-ERR max number of clients reached\r\n", "maxclients"),
    ],
)
def test_whatever_answers_is_recognized(answer: bytes, fact: str) -> None:
    """A web server, a port that hangs up, and the ways in which Redis turns somebody away before it listens."""
    with impostor(answer) as url:
        checked = check(url)

    assert fact in checked.only("reached")["fact"]


def test_a_server_without_free_connections_says_so(own_redis: RedisServer) -> None:
    """The last connection is taken by somebody else."""
    with socket.create_connection(("127.0.0.1", own_redis.port)) as other:
        other.sendall(b"CONFIG SET maxclients 1\r\n")
        assert b"+OK\r\n" == other.recv(16)
        wait_until(lambda: _clients(other) == 1, "a server with one client")  # it closes others a little later
        checked = check(own_redis.url)

    assert "maxclients" in checked.only("reached")["fact"]
    assert "CLIENT LIST" in checked.only("reached")["remedy"]


def _clients(connection: socket.socket) -> int:
    connection.sendall(b"CLIENT LIST\r\n")
    return connection.recv(65536).count(b" addr=")


@pytest.mark.parametrize(
    ("login", "fact"),
    [
        ("", "wants a password, and the URL has none"),
        (":wrong@", "knows no such user with that password"),
        (f"nobody:{PASSWORD}@", "knows no such user with that password"),
    ],
)
def test_who_may_not_log_in_is_told_why(guarded_redis: RedisServer, login: str, fact: str) -> None:
    """A missing password and a wrong one are mended in different places; the server itself was reached."""
    checked = check(guarded_redis.url.replace("//", f"//{login}"))

    assert fact in checked.only("login")["fact"]
    assert ["reached"] == checked.at("ok")
    assert ["login"] == checked.at("problem")


def test_the_right_password_is_accepted(guarded_redis: RedisServer) -> None:
    """Nothing is wrong with a server that has a password."""
    checked = check(guarded_redis.url.replace("//", f"//:{PASSWORD}@"))

    assert "the password is accepted" == checked.only("login")["fact"]
    assert [] == checked.at("problem")


def test_a_password_that_nobody_asked_for_is_a_problem(own_redis: RedisServer) -> None:
    """It may have been meant for another server."""
    checked = check(own_redis.url.replace("//", f"//:{PASSWORD}@"))

    assert "default user has none" in checked.only("login")["fact"]


def test_a_database_that_does_not_exist_is_named(redis_server: RedisServer) -> None:
    """The number is wrong, not the login."""
    checked = check(redis_server.url.replace("/0", "/9999"))

    assert "the server has no database 9999" == checked.only("login")["fact"]


def test_tls_with_the_right_authority_passes(tls_redis: TLSRedis, certificates: Certificates) -> None:
    """The connection is said to be encrypted."""
    checked = check(tls_redis.url(certificates.authority))

    assert checked.only("reached")["fact"].endswith("answers over TLS")
    assert [] == checked.at("problem")


def test_an_unknown_authority_is_told_from_a_wrong_name(tls_redis: TLSRedis, certificates: Certificates) -> None:
    """The one is mended by naming the authority, the other by another name in the URL."""
    unknown = check(f"rediss://127.0.0.1:{tls_redis.port}/0").only("reached")
    misnamed = check(tls_redis.url(certificates.authority).replace("127.0.0.1", "localhost")).only("reached")

    assert "no authority that this machine trusts" in unknown["fact"]
    assert "?ssl_ca_certs=" in unknown["remedy"]
    assert "for another name" in misnamed["fact"]
    assert "ssl_ca_certs" not in misnamed["remedy"]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (10, "certificate"),
        (18, "unknown-authority"),
        (20, "unknown-authority"),
        (62, "certificate-name"),
        (64, "certificate-name"),
    ],
)
def test_certificates_are_told_apart_by_what_openssl_calls_them(code: int, kind: str) -> None:
    """Expired, signed by itself or by a stranger, for another name or for another address."""
    refusal = ssl.SSLCertVerificationError(1, "no")
    refusal.verify_code, refusal.verify_message = code, "in OpenSSL's words"
    error = ConnectionError("Error 1 connecting to localhost:6379. no.")
    error.__context__ = refusal

    failure = as_failure(error, encrypted=True)

    assert (kind, "in OpenSSL's words") == (failure.kind, failure.text)


def test_a_missing_certificate_file_is_not_called_a_missing_socket(tls_redis: TLSRedis, tmp_path: Path) -> None:
    """Both are files that do not exist."""
    checked = check(tls_redis.url(tmp_path / "nowhere.pem"))

    path = tmp_path / "nowhere.pem"
    assert f"the file that ssl_ca_certs names, {path}, does not exist" == checked.only("reached")["fact"]


def test_a_server_that_wants_our_certificate_says_so(certificates: Certificates) -> None:
    """That is not a matter of whom we trust; and if its reason gets lost in a reset, the advice is the same."""
    port, files = free_port(), ("--tls-key-file", str(certificates.server), "--tls-cert-file", str(certificates.server))
    with RedisServer("--tls-port", str(port), *files, "--tls-ca-cert-file", str(certificates.authority)):
        checked = check(f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={certificates.authority}")

    reached = checked.only("reached")
    assert "wants a certificate from us too" in reached["fact"] + reached["remedy"]
    assert "ssl_certfile" in reached["remedy"]


def test_either_scheme_at_the_wrong_port_is_led_to_the_other(
    tls_redis: TLSRedis, redis_server: RedisServer, little_patience: None
) -> None:
    """`redis://` to a TLS port, and `rediss://` to a plain one."""
    plain = check(f"redis://127.0.0.1:{tls_redis.port}/0").only("reached")
    encrypted = check(redis_server.url.replace("redis://", "rediss://"), "--timeout", "0.1").only("reached")

    assert "must begin with rediss://" in plain["remedy"]
    assert "begins with redis://" in encrypted["remedy"]
