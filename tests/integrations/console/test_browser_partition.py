"""Goal: an operator follows live charts while a node is cut off from the hub, and sees which one that is.

Method: Chromium at a console, and three nodes at a real Redis, one of them by way of a relay that loses everything.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from reconverge import Agent
from reconverge.integrations.console import console
from tests.support.browsing import picture, served, sign_in
from tests.support.console import READER, TOKENS
from tests.support.fixtures.agents import MakeAgent
from tests.support.hubs.relay import Relay
from tests.support.servers import RedisServer

pytestmark = pytest.mark.slow


@contextmanager
def asking(agents: list[Agent]) -> Iterator[None]:
    """Asks nodes for more than they may admit, again and again."""
    over = threading.Event()

    def work() -> None:
        while not over.wait(0.02):
            for each in agents:
                each.limiter("search").hit("ada")

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_live_charts_go_on_while_a_node_is_cut_off(
    page: Page, redis_server: RedisServer, make_agent: MakeAgent
) -> None:
    """The node is shown as silent with why, it adds nothing to exposure meanwhile, and is ready again afterwards."""
    redis_server.command("FLUSHALL")
    settings: dict[str, Any] = {"namespace": "shop", "exchange_timeout": 0.5}
    with Relay(redis_server.port) as relay:
        agents = [make_agent(url, **settings) for url in (redis_server.url, redis_server.url, relay.url)]
        for each in agents:
            each.limit("search", "100/minute")
        with served(console(agents[0], tokens=TOKENS)) as address, asking(agents):
            sign_in(page, address, READER)
            page.get_by_role("link", name="Nodes").click()
            nodes, limits = page.locator("#rows-nodes"), page.locator("#rows-limits")
            expect(nodes.locator("span.ready")).to_have_count(3)
            page.goto(f"{address}#limits")
            expect(limits).to_contain_text("13 now")

            relay.lose_requests = 1.0

            expect(limits).to_contain_text("12 now")
            line = "#rows-limits path.refused"
            before = page.locator(line).first.get_attribute("d")
            page.wait_for_function(
                "([line, before]) => document.querySelector(line).getAttribute('d').split('L').length"
                " > before.split('L').length",
                arg=[line, before],
            )
            expect(page.locator("#live")).to_have_text("live")
            picture(page, "limits-partitioned")
            page.goto(f"{address}#nodes")
            expect(nodes.locator("span.silent")).to_have_count(1)
            expect(nodes).to_contain_text("it is cut off from the hub, or has ended")
            expect(nodes.locator("span.ready")).to_have_count(2)
            picture(page, "nodes-partitioned")
            page.goto(f"{address}#overview")
            expect(page.locator("#figures")).to_contain_text("1 of 3 cut off")
            expect(page.locator("#rows-changes")).to_contain_text(
                "was ready and is silent: the node has left no snapshot"
            )
            picture(page, "overview-partitioned")
            page.goto(f"{address}#nodes")

            relay.heal()

            expect(nodes.locator("span.ready")).to_have_count(3)
            page.goto(f"{address}#limits")
            expect(limits).to_contain_text("13 now")
