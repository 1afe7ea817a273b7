"""Goal: a hub that is to be reached by TLS is reached by TLS, or not at all.

Method: a real Redis with certificates of our own, and every way in which they do not fit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from reconverge.clock import SystemClock
from reconverge.errors import HubUnavailable
from reconverge.hub.registry import HubSettings
from reconverge.testing.claims.scenes.scene import Scene
from reconverge_sync.redis.hub import RedisHub
from tests.support.certificates import Certificates
from tests.support.fixtures.servers import TLSRedis

Url = Callable[[TLSRedis, Certificates], str]
GOOD: dict[str, Url] = {
    "known authority": lambda redis, known: redis.url(known.authority),
    "with a certificate of ours": lambda redis, known: redis.url(
        known.authority, f"&ssl_certfile={known.client}&ssl_keyfile={known.client}"
    ),
    "another name, unchecked": lambda redis, known: redis.url(known.authority, "&ssl_check_hostname=false").replace(
        "127.0.0.1", "localhost"
    ),
    "unknown authority, unchecked": lambda redis, known: (
        f"rediss://127.0.0.1:{redis.port}/0?ssl_cert_reqs=none&ssl_check_hostname=false"
    ),
}
BAD: dict[str, tuple[str, Url]] = {
    "unknown authority": ("tls", lambda redis, known: redis.url(known.stranger)),
    "the system's authorities": ("tls", lambda redis, known: f"rediss://127.0.0.1:{redis.port}/0"),
    "another name": ("tls", lambda redis, known: redis.url(known.authority).replace("127.0.0.1", "localhost")),
    "tls to a port without": ("timeout", lambda redis, known: redis.server.url.replace("redis://", "rediss://")),
    "no tls to a port with": ("connection", lambda redis, known: f"redis://127.0.0.1:{redis.port}/0"),
}


@pytest.mark.parametrize("name", GOOD)
def test_what_fits_is_accepted(tls_redis: TLSRedis, certificates: Certificates, name: str) -> None:
    """Checks are left out only for those who ask for that."""
    assert None is _problem_of(GOOD[name](tls_redis, certificates))


@pytest.mark.parametrize("name", BAD)
def test_what_does_not_fit_is_unavailable(tls_redis: TLSRedis, certificates: Certificates, name: str) -> None:
    """And no password is sent that could be overheard."""
    kind, url = BAD[name]

    problem = _problem_of(url(tls_redis, certificates), timeout_s=0.6)

    assert problem is not None
    assert kind == problem.kind


def test_a_server_that_wants_our_certificate_gets_it(tls_redis: TLSRedis, certificates: Certificates) -> None:
    """Without one the hub is unavailable, and says whether it knows why."""
    tls_redis.server.command("CONFIG", "SET", "tls-auth-clients", "yes")
    ours = f"&ssl_certfile={certificates.client}&ssl_keyfile={certificates.client}"
    try:
        without = _problem_of(tls_redis.url(certificates.authority))
        with_one = _problem_of(tls_redis.url(certificates.authority, ours))
    finally:
        tls_redis.server.command("CONFIG", "SET", "tls-auth-clients", "optional")

    assert without is not None
    assert without.kind in ("tls", "connection")  # the server may close before it has said why
    assert None is with_one


def test_a_certificate_file_that_does_not_exist_is_unavailable(tls_redis: TLSRedis, certificates: Certificates) -> None:
    """It may be mounted a little later than the process starts."""
    problem = _problem_of(tls_redis.url(certificates.authority.with_name("nosuch.pem")))

    assert problem is not None
    assert problem.kind in ("refused", "tls")
    assert problem.applied is False


def _problem_of(url: str, *, timeout_s: float = 5.0) -> HubUnavailable | None:
    async def ask() -> HubUnavailable | None:
        hub = RedisHub(url, HubSettings("shop", timeout_s))
        try:
            await Scene(hub, SystemClock(), join=lambda known: known).voice().says_hello()
        except HubUnavailable as error:
            return error
        finally:
            await hub.close()
        return None

    return asyncio.run(ask())
