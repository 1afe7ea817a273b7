"""Goal: whatever is asked, a node or a machine without one, it says how a customer stands in the whole fleet.

Method: four processes and the command at a real Redis; then two agents at a hub, one of which charges while the other,
and a program that is no node, explain.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from reconverge import Agent
from reconverge.clock import SystemClock
from reconverge.contracts.contracts import Contracts
from reconverge.contracts.document import checked
from reconverge.contracts.explaining import Explanation, LimitExplained
from reconverge.contracts.fleet import UNSUPPORTED, HubExplainer
from reconverge.errors import HubUnavailable, InvalidKey
from reconverge.hub.hashing import KeyHasher, hashing
from reconverge.hub.port import Hub
from reconverge_sync.memory import MemoryHub
from tests.contracts.operator import publish
from tests.support.agents import net_at
from tests.support.commands.checked import said_by
from tests.support.fixtures.agents import MakeAgent
from tests.support.hubs.no_reader import NoReader
from tests.support.programs.contracts import DAILY
from tests.support.programs.process import Process
from tests.support.published import SECRET
from tests.support.servers import RedisServer, free_port
from tests.support.waiting import eventually

FLEET = 4
KEY_SECRET = "of the keys, and long enough"  # noqa: S105  # a test's own


@pytest.mark.slow
def test_four_processes_and_a_command_tell_the_same(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a customer that one of them has refused: one sentence, and the numbers of the hub."""
    monkeypatch.setenv("RECONVERGE_SETTINGS_SECRET", SECRET)
    redis_server.command("FLUSHALL")
    url = redis_server.url
    publish(url, {"plans": DAILY, "unknown": "free"})
    attempts = ["25", "0", "0", "0"]
    processes = [Process("answer", url, SECRET, times, module="contracts") for times in attempts]
    command = ("contracts", "explain", "acme", "--hub", url, "--namespace", "shop")
    try:
        admitted = [process.says() for process in processes]
        eventually(lambda: net_at(url, "requests", namespace="shop") == 20, "the reports of the first node")
        eventually(
            lambda: json.loads(said_by(*command, "--json").stdout)["limits"][0]["used"] == 20, "what it has used"
        )
        for process in processes:
            process.go_on()
        told = [json.loads(process.says()) for process in processes]
        shown, as_json = said_by(*command), said_by(*command, "--json")
        for process in processes:
            process.go_on()
        ended = [process.ends() for process in processes]
    finally:
        for process in processes:
            process.__exit__(None, None, None)

    assert ["admitted 20", "admitted 0", "admitted 0", "admitted 0"] == admitted
    answers = [*told, json.loads(as_json.stdout)]
    (sentence,) = {answer["sentence"] for answer in answers}
    assert sentence.startswith("acme may send 20 requests a day and has sent 20; it can go on in ")
    assert [(20, 0, False, True, "")] * (FLEET + 1) == [
        (
            answer["limits"][0]["used"],
            answer["limits"][0]["remaining"],
            answer["allowed"],
            answer["fleetwide"],
            answer["problem"],
        )
        for answer in answers
    ]
    assert sentence == shown.stdout.splitlines()[0]
    assert [(0, [])] * FLEET == ended


def pair(make_agent: MakeAgent, hub: Hub, document: dict[str, Any], **settings: Any) -> tuple[Contracts, Contracts]:
    """The contracts of two nodes; `caps` are those of the first."""
    caps = settings.pop("caps", None)
    agents = [make_agent(hub, namespace="shop", **settings) for _ in range(2)]
    return Contracts(agents[0], document, caps=caps), Contracts(agents[1], document)


def by_reader(hub: Hub, document: dict[str, Any], customer: str, **facts: str) -> Explanation:
    """Explains as a program that is no node."""
    explainer = HubExplainer(hub, "hub", namespace="shop", document=checked(document), clock=SystemClock())
    return asyncio.run(explainer.explain(customer, **facts))


def by_node(contracts: Contracts, customer: str, **facts: str) -> Explanation:
    return asyncio.run(contracts.explain_fleet(customer, **facts))


def figures(explanation: Explanation) -> list[tuple[object, ...]]:
    """Returns the figures that stand still while time goes on."""
    return [_figures(each) for each in explanation.limits]


def _figures(each: LimitExplained) -> tuple[object, ...]:
    return each.name, each.former, each.switch, each.allowed, each.at_once, each.in_force, each.used, each.remaining


def charge(contracts: Contracts, times: int, customer: str = "acme", **facts: Any) -> int:
    """How many of so many requests are admitted."""
    return sum(contracts.ask_blocking(customer, within=5.0, **facts).allowed for _ in range(times))


Told = Callable[[], list[list[tuple[object, ...]]]]


def agree(told: Told, expected: Sequence[tuple[object, ...]]) -> None:
    """Wait until the node that has charged nothing and the program say what is expected, and so the same."""
    last: list[Any] = []

    def look() -> bool:
        last[:] = told()
        return all(each == expected for each in last)

    try:
        eventually(look, "the same figures")
    except AssertionError:
        assert [expected] * 2 == last
        raise


@pytest.mark.parametrize("shards", [1, 4])
def test_limits_by_several_facts_are_found_in_their_shards(make_agent: MakeAgent, shards: int) -> None:
    """A key of a plan is where the name of its limit puts it, and not the name of the plan's quota."""
    document = {
        "unknown": "team",
        "plans": {
            "team": {
                "limits": {
                    "team": "9/day",
                    "user": {"limit": "4/day", "by": ["customer", "user"]},
                    "place": {"limit": "8/day", "by": "place"},
                }
            }
        },
    }
    hub = MemoryHub(shards=shards)
    busy, other = pair(make_agent, hub, document)
    facts = {"user": "a|b", "place": "x" * 600}
    admitted = [charge(busy, 3, customer, **facts) for customer in ("acme", "b|c", "c")]

    assert [3, 3, 2] == admitted
    expected = [
        ("team", False, "on", True, 9, 9, 3, 6),
        ("user", False, "on", True, 4, 4, 3, 1),
        ("place", False, "on", False, 8, 8, 8, 0),
    ]
    for customer in ("acme", "b|c"):
        agree(
            lambda customer=customer: [  # type: ignore[misc]
                figures(by_node(other, customer, **facts)),
                figures(by_reader(hub, document, customer, **facts)),
            ],
            expected,
        )


def test_switches_of_a_contract_are_told(make_agent: MakeAgent) -> None:
    """A limit in shadow has counted, and refuses nothing; one that is off has not."""
    limits = {
        "calls": "9/day",
        "trial": {"limit": "2/day", "switch": "shadow"},
        "gone": {"limit": "1/day", "switch": "off"},
    }
    document = {"unknown": "p", "plans": {"p": {"limits": limits}}}
    hub = MemoryHub()
    busy, other = pair(make_agent, hub, document)

    assert 5 == charge(busy, 5)
    agree(
        lambda: [figures(by_node(other, "acme")), figures(by_reader(hub, document, "acme"))],
        [
            ("calls", False, "on", True, 9, 9, 5, 4),
            ("trial", False, "shadow", True, 2, 2, 2, 0),
            ("gone", False, "off", True, 1, 1, 0, 1),
        ],
    )
    assert by_node(other, "acme").sentence == by_reader(hub, document, "acme").sentence
    assert by_node(other, "acme").sentence.endswith("(in shadow), so it can go on now.")


def test_a_former_limit_is_told_beside_its_successor(make_agent: MakeAgent) -> None:
    """While its use counts, it may be the one that refuses the customer."""
    before = {"unknown": "refused", "plans": {"p": {"limits": {"calls": "5/day"}}}, "customers": {"acme": "p"}}
    former = {"name": "calls", "limit": "5/day", "until": "2100-01-01"}
    after = {
        **before,
        "plans": {"p": {"limits": {"calls": "99/hour"}}},
        "customers": {"acme": {"plan": "p", "former": [former]}},
    }
    hub = MemoryHub()
    busy, other = pair(make_agent, hub, before)

    assert 5 == charge(busy, 7)
    for contracts in (busy, other):
        contracts.replace(after)
    agree(
        lambda: [figures(by_node(other, "acme")), figures(by_reader(hub, after, "acme"))],
        [("calls", False, "on", True, 99, 99, 0, 99), ("calls", True, "on", False, 5, 5, 5, 0)],
    )
    told = by_reader(hub, after, "acme")
    assert "acme may send 5 requests a day by its former contract and has sent 5; it can go on in " in told.sentence
    assert by_node(other, "acme").sentence == told.sentence


def test_a_plan_that_has_ended_is_told_no_more(make_agent: MakeAgent) -> None:
    """The plan after it is, with what was used before."""
    document = {
        "unknown": "refused",
        "plans": {
            "trial": {"limits": {"calls": "9/day"}, "lasts": "P14D", "then": "free"},
            "free": {"limits": {"calls": "5/day"}},
        },
        "customers": {"acme": {"plan": "trial", "since": "2020-01-01"}},
    }
    hub = MemoryHub()
    busy, other = pair(make_agent, hub, document)

    assert 5 == charge(busy, 7)
    agree(
        lambda: [figures(by_node(other, "acme")), figures(by_reader(hub, document, "acme"))],
        [("calls", False, "on", False, 5, 5, 5, 0)],
    )
    assert "free" == by_node(other, "acme").plan == by_reader(hub, document, "acme").plan


def test_a_cap_of_a_node_is_told_by_all(make_agent: MakeAgent) -> None:
    """It holds for the key on all nodes, and the sentence says of the contract and of the cap."""
    document = {"unknown": "p", "plans": {"p": {"limits": {"calls": {"limit": "20/day", "soft": "10%"}}}}}
    hub = MemoryHub()
    busy, other = pair(make_agent, hub, document, caps={"calls": "10/day"})

    assert 11 == charge(busy, 15)
    agree(
        lambda: [figures(by_node(other, "acme")), figures(by_reader(hub, document, "acme"))],
        [("calls", False, "on", False, 20, 10, 11, 0)],
    )
    (sentence,) = {
        by_node(busy, "acme").sentence, by_node(other, "acme").sentence, by_reader(hub, document, "acme").sentence
    }  # fmt: skip
    assert "acme may send 20 requests a day, of which the servers allow 10 now, and has sent 11; it" in sentence
    assert "of which the servers allow 10 now" in busy.explain("acme").sentence


def test_hashed_keys_are_found_by_their_hashes(make_agent: MakeAgent) -> None:
    """With the secret of the nodes; the hub does not know the customer's name."""
    document = {"unknown": "p", "plans": {"p": {"limits": {"calls": "5/day"}}}}
    hub = MemoryHub()
    busy, other = pair(make_agent, hub, document, key_secret=KEY_SECRET)
    hashed = hashing(hub, KeyHasher(KEY_SECRET, namespace="shop"))

    assert 5 == charge(busy, 7)
    agree(
        lambda: [figures(by_node(other, "acme")), figures(by_reader(hashed, document, "acme"))],
        [("calls", False, "on", False, 5, 5, 5, 0)],
    )
    assert 0 == by_reader(hub, document, "acme").limits[0].used


def test_a_reader_makes_a_key_of_no_fact_that_a_node_refuses(make_agent: MakeAgent) -> None:
    """An empty fact is the same error to both: neither says how a key stands that counts nothing."""
    document = {"unknown": "p", "plans": {"p": {"limits": {"calls": {"limit": "5/day", "by": ["customer", "user"]}}}}}
    hub = MemoryHub()
    node, _ = pair(make_agent, hub, document)

    with pytest.raises(InvalidKey, match=r"the fact 'user', .* is empty"):
        by_node(node, "acme", user="")
    with pytest.raises(InvalidKey, match=r"the fact 'user', .* is empty"):
        by_reader(hub, document, "acme", user="")


def test_a_node_whose_hub_tells_nothing_says_that_it_knows_no_more(make_agent: MakeAgent) -> None:
    """In the sentence, too, which is what people read; a program that is no node knows nothing at all."""
    document = {"unknown": "p", "plans": {"p": {"limits": {"calls": "5/day"}}}}
    hub = NoReader()
    busy, other = pair(make_agent, hub, document)
    charge(busy, 5)

    told = by_node(busy, "acme")

    assert (False, UNSUPPORTED) == (told.fleetwide, told.problem)
    assert told.sentence.startswith(
        "as far as this server knows, acme may send 5 requests a day and has sent 5; it can"
    )
    assert (5, 0) == (told.limits[0].used, by_node(other, "acme").limits[0].used)
    with pytest.raises(HubUnavailable, match=r"name one that implements reconverge\.hub\.KeyReader"):
        by_reader(hub, document, "acme")


def test_an_outage_is_told_by_its_kind_alone() -> None:
    """The problem names no host, as the answer may go to the customer."""
    url = f"redis://127.0.0.1:{free_port()}/0"
    contracts = Contracts(
        Agent(url, exchange_timeout=0.5), {"unknown": "p", "plans": {"p": {"limits": {"calls": "5/day"}}}}
    )

    told = by_node(contracts, "acme")

    assert (False, "the hub does not answer (refused)") == (told.fleetwide, told.problem)


def test_a_customer_without_limits_needs_no_hub() -> None:
    """The contracts alone tell that."""
    contracts = Contracts(Agent("memory://"), {"plans": {"p": {"limits": {"calls": "5/day"}}}})

    told = by_node(contracts, "acme")

    assert "acme has no contract, and requests without one are refused." == told.sentence
    assert (True, "") == (told.fleetwide, told.problem)
