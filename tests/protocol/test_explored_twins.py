"""Goal: what is explored with the kernel and the merge rule in Python is true of the kernel in C and the rule in Lua.

Method: each follows paths of an exploration, and everything that is sent, answered and known along them is compared.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconverge.clock import ManualClock
from reconverge.hub.registry import HubSettings
from reconverge.hub.report import SCHEMA_VERSION
from reconverge.limit.limit import PACED
from reconverge.simulation.explore.events import GRAINS, KINDS, POLICIES, Exploration
from reconverge_sync.redis.hub import RedisHub
from tests.support.effort import tried
from tests.support.explored import Explorer, Heard, Sample, course_of
from tests.support.hubs.lua import keeping_all
from tests.support.servers import RedisServer

DEPTH = 6
WIDTH = 3


@pytest.fixture(scope="module")
def explorer() -> Iterator[Explorer]:
    with Explorer() as explorer:
        yield explorer


@st.composite
def samples(draw: st.DrawFn, kind: str) -> Sample:
    """A few paths with that kind of limit."""
    policy, grain = draw(st.sampled_from(tuple(POLICIES))), draw(st.sampled_from(GRAINS))
    case = Exploration(kind, draw(st.sampled_from([2, 3, 4])), policy, asking=True, grain=grain)
    asking = case.limit().algorithm not in PACED
    return Sample(case._replace(asking=asking), DEPTH, WIDTH, draw(st.integers(0, 10**6)))


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(max_examples=tried(2, long=15, brief=1))
def test_c_and_lua_follow_what_is_explored(
    kind: str, explorer: Explorer, shared_redis: RedisServer, data: st.DataObject
) -> None:
    """Both along the same paths: every batch, answer, admission and cell is the same."""
    sample = data.draw(samples(kind))
    for names, trace in explorer.explores(sample):
        course = course_of(sample.case, names)

        assert course.trace == trace, names
        asyncio.run(answers_alike(shared_redis, course.heard))


async def answers_alike(server: RedisServer, heard: list[Heard]) -> None:
    """Sends the same batches at the same times to a hub in Redis."""
    server.command("FLUSHALL")
    generation = heard[0].answer.generation if heard else ""
    begun = {"generation": generation, "born": "0", "schema": str(SCHEMA_VERSION)}
    server.command("HSET", "twins:{0}:meta", *(word for entry in begun.items() for word in entry))
    clock = ManualClock()
    with keeping_all():
        hub = RedisHub(server.url, HubSettings("twins", 5.0), clock=clock, new_name=lambda: generation)
        for each in heard:
            generation = each.answer.generation
            if each.lost:
                server.command("FLUSHALL")
            clock.advance_ns(each.wall_ns - clock.wall_ns())

            assert each.answer == await hub.exchange(each.batch), each.batch
        await hub.close()
