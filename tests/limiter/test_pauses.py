"""A pause holds on all nodes until the latest end that any of them has heard of, and charges nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from reconverge import Agent, LimitConflict
from reconverge.clock import SECOND_NS
from reconverge.limiter.pauses import HEARD_MAX, LONGEST_S, Pauses
from reconverge.testing import ManualClock
from tests.support.servers import RedisServer
from tests.support.waiting import eventually


def pauses_of(agent: Agent) -> Pauses:
    return agent.limit("api", "20/day").control.pauses


def pause(pauses: Pauses, key: str, seconds: int) -> None:
    pauses.begin(key, pauses.table.kernel.clock.monotonic_ns() + seconds * SECOND_NS)


@pytest.fixture
def agents(redis_server: RedisServer) -> Iterator[list[Agent]]:
    started = [Agent(redis_server.url, sync_interval=0.02) for _ in range(2)]
    yield started
    for agent in started:
        agent.stop()


def test_the_latest_end_counts_on_all_nodes(agents: list[Agent]) -> None:
    """Two nodes hear of different ends at once: neither adds to the other, and the later one wins."""
    one, other = map(pauses_of, agents)

    pause(one, "server", 3600)
    pause(other, "server", 7200)

    eventually(lambda: one.left_ns("server") > 7000 * SECOND_NS, "the node with the earlier end hears of the later one")
    assert one.left_ns("server") <= 7201 * SECOND_NS
    assert other.left_ns("server") <= 7200 * SECOND_NS


def test_a_node_that_does_not_know_the_hubs_clock_yet_shares_its_pause_later(agents: list[Agent]) -> None:
    """A process that begins with a refused call."""
    one, other = map(pauses_of, agents)

    pause(one, "server", 3600)

    eventually(lambda: other.left_ns("server") > 3500 * SECOND_NS, "the other node knows of the pause")


def test_an_earlier_end_does_not_shorten_a_pause() -> None:
    """Whichever is heard last."""
    clock = ManualClock()
    pauses = pauses_of(Agent("memory://", clock=clock))

    pause(pauses, "server", 5)
    pause(pauses, "server", 1)

    assert 5 * SECOND_NS == pauses.left_ns("server")
    clock.advance(5)
    assert 0 == pauses.left_ns("server")


def test_a_pause_charges_nothing_and_ends_within_a_day() -> None:
    """However far its end is said to be."""
    agent = Agent("memory://", clock=ManualClock())
    pauses = pauses_of(agent)

    pause(pauses, "server", 10 * LONGEST_S)

    assert LONGEST_S * SECOND_NS == pauses.left_ns("server")
    assert 20 == agent.limiter("api").test("server").remaining
    assert 0 == pauses.left_ns("another")


def test_a_full_node_remembers_the_latest_pauses() -> None:
    """Keys beyond `max_keys` have no place in the table, and beyond `HEARD_MAX` none at all."""
    agent = Agent("memory://", clock=ManualClock(), max_keys=10)
    pauses = pauses_of(agent)

    for number in range(20 + HEARD_MAX):
        pause(pauses, f"server {number}", 60)

    assert 0 == pauses.left_ns("server 15")
    assert 60 * SECOND_NS == pauses.left_ns(f"server {19 + HEARD_MAX}")


def test_the_name_of_the_pauses_is_taken() -> None:
    """By a limit that was declared before: an error, and no limit that is paused by accident."""
    agent = Agent("memory://")
    agent.limit("api/pause", "5/minute")

    with pytest.raises(LimitConflict):
        pauses_of(agent)
