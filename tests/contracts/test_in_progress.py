"""Goal: a plan that says "20 in flight" holds, and a slot is given back once, whatever changes while it is held.

Method: contracts of one node and of two nodes on one Redis; guards of ASGI and FastAPI decide, and responses are held
open while the document is replaced. Each slot that is held is counted, and must be gone in the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from fastapi import Depends, FastAPI
from fastapi.responses import StreamingResponse

from reconverge import Agent, NeedsSlot, RateLimiter, Slot, SlotLimiter
from reconverge.contracts.central import CustomerRequest, Shape
from reconverge.contracts.contracts import Contracts
from reconverge.contracts.document import checked
from reconverge.contracts.model import InvalidContracts
from reconverge.contracts.rehearsal import Rehearsal
from reconverge.contracts.writing import table_of
from reconverge.integrations import Rule, by_header
from reconverge.integrations.asgi import RateLimitMiddleware
from reconverge.integrations.fastapi import Limits
from tests.support.applications.asking import asgi_answer, http_scope, statuses
from tests.support.fixtures.agents import MakeAgent
from tests.support.servers import RedisServer
from tests.support.waiting import eventually

BY_CUSTOMER = by_header("x-customer")
PLANS: dict[str, Any] = {
    "free": {"limits": {"jobs": "2 in flight", "requests": "1000/hour"}},
    "pro": {"limits": {"jobs": "4 in flight", "requests": "1000/hour"}},
}
DOCUMENT: dict[str, Any] = {
    "plans": PLANS,
    "unknown": "free",
    "customers": {"big": {"plan": "free", "limits": {"jobs": "3 in flight"}}},
}
LARGER = 4
WITH_A_LEASE = {"jobs": {"limit": "2 in flight lease 10s"}, "more": {"limit": "3 concurrent", "lease": 7.5}}


def document(**customers: Any) -> dict[str, Any]:
    """The document with other customers."""
    return {**DOCUMENT, "customers": customers}


def jobs_of(contracts: Contracts, customer: str) -> SlotLimiter:
    """The limiter of what is in progress that holds for a customer now."""
    found = next(limiter for term, limiter in contracts.standing(customer).parts if term.name == "jobs")
    assert isinstance(found, SlotLimiter)
    return found


def taken(contracts: Contracts, customer: str, times: int) -> list[Slot]:
    """Acquires so many slots, and returns those that there were."""
    slots = [jobs_of(contracts, customer).slot(customer).acquire() for _ in range(times)]
    return [slot for slot in slots if slot]


def in_use(agent: Agent) -> int:
    """How many slots are, of all limits of a node."""
    return sum(each.in_use or 0 for each in agent.stats().limits.values())


@pytest.fixture
def agent() -> Agent:
    """One that is alone."""
    return Agent("memory://")


@pytest.fixture
def contracts(agent: Agent) -> Contracts:
    """Two, three or four slots, by the customer."""
    return Contracts(agent, DOCUMENT)


class OpenResponses:
    """An ASGI application whose responses stay open until they are let go."""

    def __init__(self) -> None:
        self.let_go = asyncio.Event()

    async def __call__(self, _scope: Any, _receive: Any, send: Any) -> None:
        """Begin to answer, and end when it is let go."""
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"a", "more_body": True})
        await self.let_go.wait()
        await send({"type": "http.response.body", "body": b"b"})


async def begun(app: Any, customer: str, times: int) -> list[asyncio.Task[Any]]:
    """So many requests, of which each has been refused or holds its slot."""
    tasks = []
    for _ in range(times):
        tasks.append(asyncio.create_task(asgi_answer(app, http_scope("/", x_customer=customer))))
        for _ in range(10):
            await asyncio.sleep(0)
    return tasks


async def answered(tasks: list[asyncio.Task[Any]]) -> list[int]:
    """The status of each."""
    return statuses(await asyncio.gather(*tasks))


def test_a_request_has_its_slot_until_its_response_ends(agent: Agent, contracts: Contracts) -> None:
    """The plan, or the customer in place of it, sets the number; a request too many costs nothing of the rate."""

    async def story() -> tuple[int, list[list[int]]]:
        held = OpenResponses()
        app = RateLimitMiddleware(held, rules=[Rule(limits=contracts, key_func=BY_CUSTOMER)], agent=agent)
        tasks = [await begun(app, customer, 5) for customer in ("small", "big")]
        running = in_use(agent)
        held.let_go.set()
        return running, [await answered(each) for each in tasks]

    running, (small, big) = asyncio.run(story())

    assert 2 + 3 == running
    assert [200, 200, 429, 429, 429] == small
    assert [200, 200, 200, 429, 429] == big
    assert 0 == in_use(agent)
    assert [2, 3] == [contracts.usages(each)["requests"].own for each in ("small", "big")]


def test_a_plan_changes_while_slots_are_held(agent: Agent, contracts: Contracts) -> None:
    """A running request counts in the new plan, larger or smaller, and gives its slot back to it, once."""

    async def story() -> tuple[list[int], list[list[int]]]:
        held, running, tasks = OpenResponses(), [], []
        app = RateLimitMiddleware(held, rules=[Rule(limits=contracts, key_func=BY_CUSTOMER)], agent=agent)
        for plan in ("free", "pro", "free"):
            contracts.replace(document(ada=plan))
            tasks.append(await begun(app, "ada", 3))
            running.append(in_use(agent))
        held.let_go.set()
        return running, [await answered(each) for each in tasks]

    running, (free, pro, back) = asyncio.run(story())

    assert [2, 4, 4] == running
    assert [[200, 200, 429], [200, 200, 429], [429, 429, 429]] == [free, pro, back]
    assert 0 == in_use(agent)
    assert [2, 0] == [len(taken(contracts, "ada", 3)), in_use(agent)]


def test_a_slot_is_given_back_once_after_its_plan_has_changed(agent: Agent, contracts: Contracts) -> None:
    """However often that is said, and by the slot of either plan."""
    before = taken(contracts, "ada", 2)
    contracts.replace(document(ada="pro"))
    after = taken(contracts, "ada", 3)
    counts = [in_use(agent)]
    for slot in (*before, *before, *after, *after):
        slot.release()
        counts.append(in_use(agent))

    assert [4, 3, 2, 2, 2, 1, 0, 0, 0] == counts


def test_a_dependency_of_fastapi_holds_the_slot_of_a_contract(agent: Agent, contracts: Contracts) -> None:
    """Until a stream has ended, for as many as the customer has; the response says what is counted."""
    app, limits = FastAPI(), Limits(agent)
    limits.install(app)

    async def story() -> tuple[int, list[Any]]:
        let_go, streams = asyncio.Event(), asyncio.Semaphore(0)

        @app.get("/", dependencies=[Depends(limits(contracts, key_func=BY_CUSTOMER))])
        async def stream() -> StreamingResponse:
            async def words() -> AsyncIterator[str]:
                yield "a"
                streams.release()
                await let_go.wait()

            return StreamingResponse(words())

        tasks = [asyncio.create_task(asgi_answer(app, http_scope("/", x_customer="big"))) for _ in range(3)]
        for _ in tasks:
            await streams.acquire()
        refused = await asgi_answer(app, http_scope("/", x_customer="big"))
        running = in_use(agent)
        let_go.set()
        return running, [refused, *await asyncio.gather(*tasks)]

    running, (refused, *others) = asyncio.run(story())

    assert (3, 429, [200, 200, 200]) == (running, refused.status, statuses(others))
    assert 'q=3;qu="concurrent-requests"' in refused.headers["ratelimit-policy"]
    assert 0 == in_use(agent)


def test_what_a_request_costs_of_rates_is_no_number_of_slots(agent: Agent) -> None:
    """It has one slot, and what its response turns out to cost changes nothing about that, even where this fails."""

    def fails(_response: Any) -> int:
        raise KeyError("a mistake")

    contracts = Contracts(agent, DOCUMENT)
    for number, settle in enumerate((lambda _response: 7, fails)):
        held = OpenResponses()
        held.let_go.set()
        rule = Rule(limits=contracts, key_func=BY_CUSTOMER, cost=10, settle=settle)
        app = RateLimitMiddleware(held, rules=[rule], agent=agent)
        answer = asyncio.run(asgi_answer(app, http_scope("/", x_customer=f"{number}")))
        assert (200, 0) == (answer.status, in_use(agent))

    assert [7, 10] == [contracts.usages(each)["requests"].own for each in "01"]
    assert 0 == sum(each.dropped_slots for each in agent.stats().limits.values())


def test_what_would_take_a_slot_for_ever_is_refused(contracts: Contracts) -> None:
    """By name, before anything is charged to the contract's other limits; a look takes nothing, and answers."""
    for method in (contracts.hit, contracts.ask_blocking):
        with pytest.raises(NeedsSlot, match=r"'jobs'.*Rule\(limits=contracts\)"):
            method("ada")
    with pytest.raises(NeedsSlot, match="'jobs'"):
        asyncio.run(contracts.ask("ada"))
    assert "with limiter.slot(key)" in str(NeedsSlot("jobs", "hit"))

    assert contracts.test("ada").allowed
    assert [0, 0] == [each.own for each in contracts.usages("ada").values()]


def test_a_reset_leaves_what_is_in_progress(agent: Agent, contracts: Contracts) -> None:
    """Rates are forgotten; of a contract that has no other limit the error says that nothing would change."""
    taken_now = taken(contracts, "ada", 2)
    requests = next(limiter for term, limiter in contracts.standing("ada").parts if term.name == "requests")
    assert isinstance(requests, RateLimiter)
    requests.hit("ada", 5)
    contracts.reset("ada")
    assert 0 == contracts.usages("ada")["requests"].own
    contracts.replace({"plans": {"lone": {"limits": {"jobs": "2 in flight"}}}, "unknown": "lone"})

    assert (2, 2) == (len(taken_now), in_use(agent))
    with pytest.raises(NeedsSlot, match=r"reset\(\) of 'jobs' would change nothing"):
        contracts.reset("ada")
    for slot in taken_now:
        slot.release()


def test_an_explanation_says_what_is_in_progress_and_no_time(agent: Agent, contracts: Contracts) -> None:
    """Nothing tells when work ends, so no moment is named."""
    slots = taken(contracts, "ada", 2)
    explanation = contracts.explain("ada")
    for slot in slots:
        slot.release()

    assert (
        "ada may have 2 requests in progress at once and has 2; it can go on when something in progress has ended."
        == explanation.sentence
    )
    assert (False, float("inf"), ("jobs",)) == (explanation.allowed, explanation.wait_s, explanation.refused_by)
    assert [(0.0, 0.0), (3600.0, 3.6)] == [(each.window_s, each.refill_s) for each in explanation.limits]
    assert contracts.explain("ada").allowed


def test_a_document_says_slots_in_one_way_and_is_read_back() -> None:
    """The lease as part of the limit string, left out where it is the usual one."""
    said = table_of(checked({"plans": {"free": {"limits": WITH_A_LEASE}}}))["plans"]["free"]["limits"]

    assert {"jobs": "2 in flight lease 10000ms", "more": "3 in flight lease 7500ms"} == said
    assert said == table_of(checked({"plans": {"free": {"limits": said}}}))["plans"]["free"]["limits"]


@pytest.mark.parametrize(
    ("override", "lease_s"),
    [("3 in flight", 10.0), ("3 in flight lease 10s", 10.0), ("3 in flight lease 20s", 20.0), ("3/hour", None)],
)
def test_a_number_of_slots_of_a_customer_keeps_the_lease_of_the_plan(override: str, lease_s: float | None) -> None:
    """Unless it names another one, or is a limit on a rate."""
    table = {
        "plans": {"free": {"limits": {"jobs": "2 in flight lease 10s"}}},
        "customers": {"ada": {"plan": "free", "limits": {"jobs": override}}},
    }
    limit = Contracts(Agent("memory://"), table).standing("ada").parts[0][1].limit

    assert (3, lease_s) == (limit.quota, limit.lease)


@pytest.mark.parametrize(
    ("jobs", "cap", "problem"),
    [
        ("2 in flight lease 100ms", None, "must be at least"),
        ("2 in flight burst 3", None, "the end"),
        ({"limit": "2 in flight", "soft": 0.5}, None, "soft does not go with"),
        ({"limit": "2 in flight", "lease": 1000}, None, "less than or equal to 600"),
        ({"limit": "2/hour", "lease": 10}, None, "lease"),
        ("2 in flight", "5/5s", "another window"),
        ("2/5s", "5 in flight", "another window"),
    ],
)
def test_a_mistake_about_slots_is_told_when_the_document_is_read(jobs: Any, cap: str | None, problem: str) -> None:
    """With what is wrong; so is a lease that is too short for the interval of the node, and a cap of another kind."""
    agent, caps = Agent("memory://"), None if cap is None else {"jobs": cap}
    with pytest.raises(InvalidContracts, match=problem):
        Contracts(agent, {"plans": {"free": {"limits": {"jobs": jobs}}}, "unknown": "free"}, caps=caps)


def test_a_cap_holds_whatever_its_lease(agent: Agent) -> None:
    """No document has more run on a node than it has said."""
    contracts = Contracts(agent, {**DOCUMENT, "unknown": "pro"}, caps={"jobs": "3 in flight lease 20s"})
    slots = taken(contracts, "ada", 5)

    assert 3 == len(slots)
    for slot in slots:
        slot.release()


def test_a_rehearsal_leaves_slots_out() -> None:
    """A recording tells when requests began, and not when they ended, so none is refused for what is in progress."""
    rehearsal = Rehearsal(None, checked(DOCUMENT), Shape())
    for number in range(100):
        rehearsal.see(CustomerRequest(number, "ada"))

    assert 0 == rehearsal.outcome().newly_refused


def test_a_plan_that_changes_on_two_nodes_runs_no_more_than_the_larger(
    redis_server: RedisServer, make_agent: MakeAgent
) -> None:
    """With all four slots of the larger plan held, none of the smaller one is free until three are back."""
    agents = [make_agent(redis_server.url, exchange_timeout=1.0) for _ in range(2)]
    nodes = [Contracts(agent, document(ada="pro"), policy="strict") for agent in agents]
    held, wanted = list[Slot](), LARGER

    def takes_another() -> bool:
        held.extend(slot for each in nodes for slot in taken(each, "ada", 1))
        return len(held) >= wanted

    eventually(takes_another, "all slots of the larger plan")
    assert LARGER == len(held)
    for each in nodes:
        each.replace(document(ada="free"))
    assert [[], []] == [taken(each, "ada", 1) for each in nodes]
    for slot in held[:3]:
        slot.release()
    wanted += 1
    eventually(takes_another, "a slot of the smaller plan, beside the one that is still held")

    assert LARGER + 1 == len(held)
    assert [[], []] == [taken(each, "ada", 1) for each in nodes]
    for slot in held:
        slot.release()
    assert [0, 0] == [in_use(agent) for agent in agents]
