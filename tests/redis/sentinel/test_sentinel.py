"""Goal: the hub that Sentinels lead to keeps every promise of a hub, however it is reached.

Method: what depends on the way to a hub, on a real master with a replica and three Sentinels: with the test's clock;
and with the server's, over TLS, as users who may do nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from reconverge.hub import Hub
from reconverge.hub.registry import HubSettings
from reconverge.testing import BoardClaims, ManualClock
from reconverge.testing.board_claims import BoardHub
from reconverge_sync.sentinel.hub import SentinelHub
from tests.support.certificates import Certificates, tls_options
from tests.support.fixtures.servers import QUOTED_PASSWORD, allow
from tests.support.hubs.reached import WayClaims
from tests.support.redis_sentinel import SERVICE, RedisService
from tests.support.servers import free_port

pytestmark = pytest.mark.slow

TIMEOUT_S = 30.0
SETTINGS = HubSettings("claims", TIMEOUT_S)
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


class TestSentinelHub(WayClaims):
    """The master's time is the test's; every node has connections of its own."""

    seeds = range(1)
    settings = SETTINGS

    @pytest.fixture(autouse=True)
    def on_a_service(self, shared_service: RedisService) -> None:
        """Use the service that the tests share."""
        self.service = shared_service
        self.url = shared_service.url

    def make_hub(self, clock: ManualClock) -> Hub:
        """A hub without data."""
        self.service.master.command("FLUSHALL")
        self.clock = clock
        return self.open_hub(self.url, self.settings)

    def join(self, hub: Hub) -> Hub:
        """Another client of the same service."""
        return self.open_hub(self.url, self.settings)

    def make_stranger(self, hub: Hub) -> Hub:
        """Another fleet on the same service; another user's, where there are users."""
        return self.open_hub(self.url.replace(f"shop:{QUOTED_PASSWORD}@", ""), HubSettings("contract2", TIMEOUT_S))

    def make_unreachable(self) -> Hub:
        """A hub without any Sentinel."""
        return SentinelHub(f"redis+sentinel://127.0.0.1:{free_port()},127.0.0.1:{free_port()}/{SERVICE}", SETTINGS)

    async def lose_data(self, hub: Hub) -> None:
        """Master and replica come back empty."""
        self.service.master.command("FLUSHALL")

    def open_hub(self, url: str, settings: HubSettings) -> Hub:
        """One more client."""
        return SentinelHub(url, settings, clock=self.clock)


class TestSentinelHubBehindTLS(TestSentinelHub):
    """Sentinels and servers have certificates that an authority of our own has signed; users have few rights."""

    own_clock = True
    settings = HubSettings("shop", TIMEOUT_S)

    @pytest.fixture(autouse=True)
    def on_a_service(self, tls_service: RedisService, certificates: Certificates, acl_line: str) -> None:
        allow(tls_service.master, acl_line)
        self.service = tls_service
        place = tls_service.url.replace("redis+sentinel://", f"rediss+sentinel://shop:{QUOTED_PASSWORD}@")
        self.url = f"{place}?{FINDER_OPTIONS}&ssl_ca_certs={certificates.authority}"

    def open_hub(self, url: str, settings: HubSettings) -> Hub:
        """A client that has the script ask for the time."""
        return SentinelHub(url, settings)


class TestSnapshotsAtAService(BoardClaims):
    """A console sees the nodes of a fleet that Sentinels lead to its hub, as users with few rights."""

    @pytest.fixture(autouse=True)
    def _on_a_service(self, shared_service: RedisService, acl_line: str) -> None:
        allow(shared_service.master, acl_line)
        self.service = shared_service

    def make_board(self, clock: ManualClock) -> BoardHub:
        self.service.master.command("FLUSHALL")
        self.clock = clock
        return self._board("shop", f"shop:{QUOTED_PASSWORD}@")

    def join_board(self, hub: BoardHub) -> BoardHub:  # it is the same master
        return self._board("shop", f"shop:{QUOTED_PASSWORD}@")

    def make_board_of_a_stranger(self, hub: BoardHub) -> BoardHub:  # likewise
        return self._board("other", "")

    def _board(self, namespace: str, login: str) -> BoardHub:
        url = f"{self.service.url.replace('://', f'://{login}')}?{FINDER_OPTIONS}"
        return SentinelHub(url, HubSettings(namespace, TIMEOUT_S), clock=self.clock)
