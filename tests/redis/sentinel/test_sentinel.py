"""Goal: the hub that Sentinels lead to keeps every promise of a hub, however it is reached.

Method: what depends on the way to a hub, on a real master with a replica and three Sentinels: with the test's clock;
and with the server's, over TLS, as users who may do nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from reconverge.hub.registry import HubSettings
from reconverge_sync.sentinel.hub import SentinelHub
from tests.support.certificates import Certificates, tls_options
from tests.support.fixtures.servers import allow
from tests.support.hubs.reached import StoreClaims, WayClaims
from tests.support.hubs.ways import LOGIN, AtAService
from tests.support.redis_sentinel import RedisService

pytestmark = pytest.mark.slow

FINDER = re.search(r"ACL SETUSER finder (on .*)", SentinelHub.__doc__ or "")
assert FINDER is not None
FINDER_LINE = f"user finder {FINDER[1].replace('>PASSWORD', '>hunter2')}"
FINDER_OPTIONS = "sentinel_username=finder&sentinel_password=hunter2"


@pytest.fixture(scope="session")
def shared_service() -> Iterator[RedisService]:
    """A service for all tests that leave it as they found it; its Sentinels have a user who may ask one thing."""
    with RedisService(sentinel_lines=(FINDER_LINE,)) as service:
        yield service


@pytest.fixture(scope="session")
def tls_service(certificates: Certificates) -> Iterator[RedisService]:
    """Likewise, with TLS everywhere."""
    with RedisService(tls=tls_options(certificates), sentinel_lines=(FINDER_LINE,)) as service:
        yield service


class TestSentinelHub(AtAService, WayClaims, StoreClaims):
    """The master's time is the test's; every node has connections of its own."""


class TestSentinelHubBehindTLS(TestSentinelHub):
    """Sentinels and servers have certificates that an authority of our own has signed; users have few rights."""

    own_clock = True
    settings = HubSettings("shop", 30.0)

    @pytest.fixture(autouse=True)
    def on_a_service(self, tls_service: RedisService, certificates: Certificates, acl_line: str) -> None:
        allow(tls_service.master, acl_line)
        self.service = tls_service
        place = tls_service.url.replace("redis+sentinel://", f"rediss+sentinel://{LOGIN}")
        self.url = f"{place}?{FINDER_OPTIONS}&ssl_ca_certs={certificates.authority}"
