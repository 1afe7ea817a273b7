"""Goal: a snapshot says how a node stands, has a bound, and is read with suspicion.

Method: agents on a clock of the test's own, with whichever kernel runs; then snapshots that are made by hand.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from reconverge import Agent
from reconverge.agent.snapshots.snapshot import Denial, KeyUse, LimitSnapshot, decoded, encoded
from reconverge.agent.snapshots.top_keys import SCANNED_MAX, TopKeys
from reconverge.clock import ManualClock
from reconverge.hub.board import SNAPSHOT_BYTES_MAX
from reconverge.limit.limit import Limit
from tests.support.snapshots import LIMIT, START_S, some_snapshot


@pytest.fixture
def clock() -> ManualClock:
    """At some moment."""
    return ManualClock(START_S)


@pytest.fixture
def agent(clock: ManualClock) -> Agent:
    """One without a hub."""
    return Agent("memory://", clock=clock)


def limit_of(agent: Agent, name: str = "login") -> LimitSnapshot:
    return next(each for each in agent.snapshot().limits if each.name == name)


def test_a_snapshot_says_what_was_decided(agent: Agent) -> None:
    """Of each quota, in requests, with the limit in words and the policy."""
    login = agent.limit("login", "3/minute")
    for _ in range(5):
        login.allow("ada")

    said = limit_of(agent)

    assert (3, 2, 1) == (said.admitted, said.refused, said.keys)
    assert ("3/60s (sliding-window)", "balanced", 0.1, 3) == (
        said.said,
        said.policy,
        said.overshoot,
        said.capacity,
    )


@pytest.mark.parametrize(
    "limit",
    [
        Limit(5, 60.0),
        Limit(5, 60.0, algorithm="token-bucket", burst=9, initial=2, refill="interval"),
        Limit(5, 60.0, algorithm="sliding-slices", slices=6, soft=0.5),
        Limit(5, 86_400.0, algorithm="fixed-window", align="calendar", timezone="Europe/Paris"),
        Limit(5, algorithm="concurrency", lease=7.0),
        Limit(5, 1.0, algorithm="smooth-warming-up", warmup=3.0),
    ],
    ids=str,
)
def test_a_limit_can_be_made_again_of_what_is_declared(agent: Agent, limit: Limit) -> None:
    """So that a console can ask the hub about its keys without declaring it itself."""
    agent.declare("login", limit)

    said = decoded(encoded(agent.snapshot()))

    assert said is not None
    assert limit == Limit(**said.limits[0].declared)


def test_the_fullest_keys_come_first(agent: Agent) -> None:
    """By the part of their limit that they have used; keys that have used nothing are not told of."""
    login, mail = agent.limit("login", "10/minute"), agent.limit("mail", "100/minute")
    for key, cost in (("ada", 3), ("bob", 7)):
        login.allow(key, cost=cost)
    mail.allow("eve", cost=50)
    login.test("new")

    top = agent.snapshot().top

    assert [
        KeyUse("login", "bob", 7, 10),
        KeyUse("mail", "eve", 50, 100),
        KeyUse("login", "ada", 3, 10),
    ] == list(top)


def test_keys_leave_the_list_when_their_use_is_over(agent: Agent, clock: ManualClock) -> None:
    """The use of two windows ago does not count."""
    agent.limit("login", "10/minute").allow("ada", cost=3)
    assert 1 == len(agent.snapshot().top)

    clock.advance(121.0)

    assert () == agent.snapshot().top


def test_a_look_goes_through_so_many_keys_and_the_next_one_goes_on(agent: Agent) -> None:
    """However many keys there are; the fullest one is found within a round, and then stays."""
    login = agent.limit("login", "10/minute")
    for number in range(2 * SCANNED_MAX):
        login.allow(f"{number}")
    login.allow("0", cost=5)
    top, tables = TopKeys(), agent._kernel.tables  # a look by itself shows nowhere else
    fullest = KeyUse("login", "0", 6, 10)

    looks = [fullest in top.look(tables, agent.clock.monotonic_ns()) for _ in range(4)]

    assert [False, True, True, True] == looks


def test_a_look_makes_no_key_and_charges_nothing(agent: Agent) -> None:
    """A page that is looked at changes nothing."""
    login = agent.limit("login", "10/minute")
    login.allow("ada")

    for _ in range(3):
        agent.snapshot()

    assert 1 == agent.stats().keys
    assert 1 == login.usage("ada").total


def test_a_node_without_an_answer_does_not_dare(agent: Agent) -> None:
    """Under a bounded policy it has its allowances, and no more; `strict` never dares, and `available` always does."""
    for policy in ("strict", "balanced", "available"):
        agent.limit(policy, "10/minute", policy=policy)

    dares = {each.name: each.dares for each in agent.snapshot().limits}

    assert {"strict": False, "balanced": False, "available": True} == dares


def test_a_snapshot_is_read_as_it_was_written() -> None:
    """With keys that have any letters."""
    snapshot = some_snapshot(
        limits=(LIMIT,),
        top=(KeyUse("login", 'ä"\ud800<b>', 1, 3),),
        denials=(Denial(START_S, "login", 2, ("ada", "bob")),),
    )

    assert snapshot == decoded(encoded(snapshot))


def test_a_snapshot_has_a_bound_whatever_a_node_has_to_say() -> None:
    """The oldest denials, the least used keys and the limits that are asked least stay out, and that is said."""
    snapshot = some_snapshot(
        grounds=("ground" * 80,) * 10,
        limits=tuple(replace(LIMIT, name=f"limit-{number}", said="\u00e9" * 500) for number in range(100)),
        top=tuple(KeyUse("login", "\u00e9" * 500, 1, 3) for _ in range(20)),
        denials=tuple(Denial(START_S, "login", each, ("\u00e9" * 100,) * 3) for each in range(20)),
    )

    payload = encoded(snapshot)

    read = decoded(payload)
    assert len(payload) <= SNAPSHOT_BYTES_MAX
    assert read is not None
    assert 100 == read.left_out + len(read.limits)
    assert [19] == [each.count for each in read.denials]


GOOD = json.loads(encoded(some_snapshot(limits=(LIMIT,), top=(KeyUse("a", "b", 1, 2),))))


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff",
        b"[" * 20_000,
        b"x" * (SNAPSHOT_BYTES_MAX + 1),
        json.dumps(GOOD | {"version": 2}).encode(),
        json.dumps(GOOD | {"more": 1}).encode(),
        json.dumps({name: value for name, value in GOOD.items() if name != "top"}).encode(),
        json.dumps(GOOD | {"host": 7}).encode(),
        json.dumps(GOOD | {"host": "x" * 1000}).encode(),
        json.dumps(GOOD | {"keys": True}).encode(),
        json.dumps(GOOD | {"keys": 1e30}).encode(),
        json.dumps(GOOD | {"staleness": "old"}).encode(),
        json.dumps(GOOD | {"state": "<script>"}).encode(),
        json.dumps(GOOD | {"limits": "many"}).encode(),
        json.dumps(GOOD | {"limits": [GOOD["limits"][0] | {"declared": []}]}).encode(),
        json.dumps(GOOD | {"limits": GOOD["limits"] * 101}).encode(),
        json.dumps(GOOD | {"top": [{"limit": "a"}]}).encode(),
        json.dumps(GOOD | {"lease": float("nan")}).encode(),
    ],
)
def test_what_is_no_snapshot_is_not_read(payload: bytes) -> None:
    """Each client of the hub could have written it."""
    assert decoded(json.dumps(GOOD).encode()) is not None

    assert decoded(payload) is None
