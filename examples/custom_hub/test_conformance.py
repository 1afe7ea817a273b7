"""The promises of a hub, tried on this one: `python -m unittest`, or pytest."""

import threading
from unittest import TestCase

from reconverge_jsonline import JsonLineHub, Server

from reconverge.clock import ManualClock
from reconverge.hub import Hub
from reconverge.hub.registry import HubSettings
from reconverge.testing import HubClaims


class TestJsonLineHub(HubClaims, TestCase):
    def setUp(self) -> None:
        self.server = Server(("127.0.0.1", 0), ManualClock(0.0))
        threading.Thread(target=self.server.serve_forever, args=(0.01,)).start()
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)

    def open_hub(self, namespace: str) -> Hub:
        return JsonLineHub(f"jsonline://127.0.0.1:{self.server.server_address[1]}", HubSettings(namespace, 5.0))

    def make_hub(self, clock: ManualClock) -> Hub:
        self.server.clock = clock
        self.server.rules.clear()
        return self.open_hub("contract")

    def join(self, hub: Hub) -> Hub:
        return self.open_hub("contract")

    def make_stranger(self, hub: Hub) -> Hub:
        return self.open_hub("another")

    def make_unreachable(self) -> Hub:
        return JsonLineHub("jsonline://127.0.0.1:1", HubSettings("claims", 5.0))

    async def lose_data(self, hub: Hub) -> None:
        self.server.rules.clear()
