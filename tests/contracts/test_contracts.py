"""Goal: a customer may use what its contract says, whatever changes while it does.

Method: examples on one node with a clock of its own, and a fleet on one Redis whose plans change under load.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from reconverge import Agent
from reconverge.contracts.answers import ContractDecision, key_of, unwritten, written
from reconverge.contracts.contracts import Contracts
from reconverge.contracts.explaining import MissingFact
from reconverge.contracts.model import InvalidContracts, counts_for_s
from reconverge.contracts.terms import terms_of
from reconverge.errors import InvalidKey, InvalidSetting
from reconverge.testing import ManualClock
from reconverge.usage import Meter
from tests.support.agents import net_at
from tests.support.fixtures.agents import MakeAgent
from tests.support.servers import RedisServer
from tests.support.waiting import eventually

NOW_S = 1_750_000_000.0
PATIENT_S = 5.0
"""So long that no request is left to memory because the machine is busy."""
PLANS: dict[str, Any] = {
    "free": {"limits": {"requests": "50/second"}},
    "standard": {"limits": {"requests": "500/second"}},
    "pro": {"limits": {"requests": "1000/second"}},
}


def contracts_of(
    plans: dict[str, Any] | None = None,
    clock: ManualClock | None = None,
    caps: dict[str, str] | None = None,
    **more: Any,
) -> Contracts:
    """The contracts of one node."""
    document = {"plans": plans or PLANS, "unknown": "free", **more}
    return Contracts(Agent("memory://", clock=clock or ManualClock(NOW_S)), document, caps=caps)


def changed(contracts: Contracts, **customers: Any) -> None:
    contracts.replace({"plans": PLANS, "unknown": "free", "customers": customers})


def admitted(contracts: Contracts, customer: str, times: int, **facts: Any) -> int:
    """How many of so many requests."""
    return sum(contracts.hit(customer, **facts).allowed for _ in range(times))


def test_use_moves_with_the_customer() -> None:
    """From free to standard to pro within a moment: no more than the largest of them; back again: nothing."""
    contracts = contracts_of()
    counts = [admitted(contracts, "acme", 60)]
    for plan in ("standard", "pro", "free"):
        changed(contracts, acme=plan)
        counts.append(admitted(contracts, "acme", 1100))

    assert [50, 450, 500, 0] == counts


def test_an_unknown_customer_can_be_refused() -> None:
    """Nothing is charged, and the answer says that there is no contract."""
    contracts = contracts_of(unknown="refused", customers={"acme": "free"})
    stranger = contracts.hit("stranger")

    assert (False, False, None) == (stranger.allowed, stranger.known, stranger.refused_by)
    assert float("inf") == stranger.retry_after
    assert contracts.hit("acme").known


def test_all_limits_of_a_contract_hold_each_by_its_own_key() -> None:
    """Each user may use ten, the customer fifteen, and the address twenty; a refused request is charged to none."""
    contracts = contracts_of(
        {
            "team": {
                "limits": {
                    "user": {"limit": "10/hour", "by": ["customer", "user"]},
                    "team": "15/hour",
                    "address": {"limit": "20/hour", "by": "address"},
                }
            }
        },
        unknown="team",
    )
    counts = [
        admitted(contracts, customer, 12, user=user, address="192.0.2.1")
        for customer, user in (("acme", "ada"), ("acme", "bob"), ("other", "ada"))
    ]
    refused = contracts.hit("acme", user="ada", address="192.0.2.1")
    usages = contracts.usages("acme", user="bob", address="192.0.2.1")

    assert [10, 5, 5] == counts
    assert {"user": 5, "team": 15, "address": 20} == {name: each.own for name, each in usages.items()}
    assert refused.refused_by in {"user", "team", "address"}
    assert {"user", "team", "address"} == set(refused.decisions)


def test_a_fact_that_is_not_named_is_an_error() -> None:
    """It says which limit counts by it; a look leaves such limits out."""
    contracts = contracts_of({"p": {"limits": {"a": "5/hour", "b": {"limit": "5/hour", "by": "user"}}}}, unknown="p")

    said = r"limit 'b' counts by 'user', which the request does not name; pass user=\.\.\., or in a rule facts="
    with pytest.raises(MissingFact, match=said):
        contracts.hit("acme")
    assert ["a"] == list(contracts.usages("acme"))


def test_a_limit_that_is_counted_otherwise_does_not_forgive_use() -> None:
    """A trial of 100 a day ends, and 60 a minute follow: until the day's use has stopped counting, both hold."""
    clock = ManualClock(NOW_S)
    plans = {
        "trial": {"limits": {"requests": "100/day"}, "lasts": "PT1H", "then": "paid"},
        "paid": {"limits": {"requests": "60/minute"}},
    }
    contracts = contracts_of(
        plans, clock, unknown="paid", customers={"acme": {"plan": "trial", "since": "2025-06-15T15:06:40Z"}}
    )
    counts = [admitted(contracts, "acme", 90)]
    clock.advance(3601)
    counts.append(admitted(contracts, "acme", 90))
    clock.advance(counts_for_s(contracts.document.plans["trial"].limits["requests"].limit))
    counts.append(admitted(contracts, "acme", 90))

    assert [90, 10, 60] == counts


def test_a_limit_in_shadow_refuses_nothing_and_one_that_is_off_is_not_asked() -> None:
    """The answer of the one in shadow is among the decisions."""
    plans = {
        "p": {
            "limits": {
                "firm": "5/hour",
                "shadow": {"limit": "2/hour", "switch": "shadow"},
                "off": {"limit": "1/hour", "switch": False},
            }
        }
    }
    contracts = contracts_of(plans, unknown="p")
    answers = [contracts.hit("acme") for _ in range(6)]

    assert [True] * 5 + [False] == [each.allowed for each in answers]
    assert [True, True, False, False, False] == [each.decisions["shadow"].allowed for each in answers[:5]]
    assert not any("off" in each.decisions for each in answers)
    assert "firm" == answers[-1].refused_by


def test_no_document_goes_beyond_a_cap_of_the_node() -> None:
    """Neither with a quota nor with a switch; a cap over another window is an error."""
    contracts = contracts_of(caps={"requests": "60/second"}, customers={"acme": {"plan": "pro", "switch": "off"}})

    assert [60, 50] == [admitted(contracts, each, 1100) for each in ("acme", "other")]
    with pytest.raises(InvalidContracts, match=r"the cap of this node, .*, is over another window"):
        contracts_of(caps={"requests": "60/minute"})
    with pytest.raises(InvalidSetting, match="is no valid cap for the limit 'requests'"):
        contracts_of(caps={"requests": "many"})


def test_a_wrong_document_changes_nothing() -> None:
    """The error says which field is wrong, and all is in force that was."""
    contracts = contracts_of(customers={"acme": "pro"})
    before = contracts.document
    with pytest.raises(InvalidContracts, match=r"plans\.free\.limits\.requests\.limit: unknown unit"):
        contracts.replace({"plans": {"free": {"limits": {"requests": "50/parsec"}}}})

    assert before is contracts.document
    assert 1000 == admitted(contracts, "acme", 1100)


def test_a_look_and_a_reset_are_by_customer() -> None:
    """A look tells the answer and charges nothing, and after a reset all may be used again."""
    contracts = contracts_of(customers={"acme": "free"})
    admitted(contracts, "acme", 50)
    looks = [contracts.test("acme").allowed, contracts.test("other").allowed]
    contracts.reset("acme")

    assert [False, True] == looks
    assert 50 == admitted(contracts, "acme", 60)


@pytest.mark.parametrize("parts", [("a", "b"), ("a|b", "c"), ("%7C", "|"), ("%25", "%")])
def test_no_two_requests_have_one_key_by_chance(parts: tuple[str, str]) -> None:
    """A separator within a fact is escaped, and read back."""
    key = key_of(("customer", "user"), parts[0], {"user": parts[1]})

    assert list(parts) == [unwritten(each) for each in key.split("|")]
    assert key != key_of(("customer", "user"), "".join(parts), {"user": ""})
    assert written(parts[0]) == key.split("|")[0]


def test_a_thousand_customers_on_twenty_plans_cost_tables_by_plan() -> None:
    """Each may use what its plan says, and the agent has one limit for each plan."""
    plans = {f"p{number}": {"limits": {"requests": f"{number + 1}/hour"}} for number in range(20)}
    customers = {f"c{number}": f"p{number % 20}" for number in range(1000)}
    contracts = contracts_of(plans, unknown="p0", customers=customers)

    assert [number % 20 + 1 for number in range(1000)] == [
        admitted(contracts, f"c{number}", 25) for number in range(1000)
    ]
    assert 20 == len(contracts.agent.limiters)


async def test_asking_decides_as_a_hit_does_on_a_node_without_a_hub() -> None:
    """For one limit and for several."""
    contracts = contracts_of({"p": {"limits": {"a": "5/hour", "b": {"limit": "3/hour", "by": "user"}}}}, unknown="p")
    one = contracts_of()

    *answers, last = [await contracts.ask("acme", user="ada") for _ in range(4)] + [await one.ask("acme")]

    assert [True, True, True, False] == [each.allowed for each in answers]
    assert "b" == answers[-1].refused_by
    assert last.allowed
    assert one.ask_blocking("acme").allowed


def test_threads_that_ask_for_exactly_what_a_contract_allows_are_all_admitted(
    redis_server: RedisServer, make_agent: MakeAgent
) -> None:
    """Of one new customer after the other, by each limit of the contract; and none is admitted beyond."""
    limits = {"hourly": "20/hour", "daily": "20/day"}
    contracts = Contracts(make_agent(redis_server.url), {"plans": {"p": {"limits": limits}}, "unknown": "p"})
    start = threading.Barrier(20)

    def ask(_: int) -> list[bool]:
        answers = []
        for number in range(10):
            start.wait()
            answers.append(contracts.ask_blocking(f"c{number}", within=PATIENT_S).allowed)
        return answers

    with ThreadPoolExecutor(20) as threads:
        assert [20] * 10 == [sum(of_one) for of_one in zip(*threads.map(ask, range(20)), strict=True)]
    assert not any(contracts.ask_blocking(f"c{number}", within=PATIENT_S).allowed for number in range(10))


def fleet_of(make_agent: MakeAgent, url: str, nodes: int, plans: dict[str, Any]) -> list[Contracts]:
    """Contracts on so many nodes of one hub."""
    document = {"plans": plans, "unknown": "small"}
    return [Contracts(make_agent(url, policy="strict"), document) for _ in range(nodes)]


def test_a_plan_that_changes_under_load_admits_no_more_than_the_larger(
    redis_server: RedisServer, make_agent: MakeAgent
) -> None:
    """Four nodes, asked all the time by threads, while the customer's plan goes up and down: 60 of a strict hour."""
    plans = {name: {"limits": {"requests": f"{quota}/hour"}} for name, quota in (("small", 20), ("large", 60))}
    fleet = fleet_of(make_agent, redis_server.url, 4, plans)
    admitted_by: list[int] = [0] * len(fleet)
    ended = threading.Event()

    def load(index: int) -> None:
        while not ended.is_set():
            admitted_by[index] += fleet[index].ask_blocking("acme").allowed

    threads = [threading.Thread(target=load, args=(index,)) for index in range(len(fleet))]
    for thread in threads:
        thread.start()
    try:
        for plan in ("large", "small", "large", "small", "large"):
            for contracts in fleet:
                contracts.replace({"plans": plans, "unknown": "small", "customers": {"acme": plan}})
        eventually(lambda: sum(admitted_by) >= 60, "the larger quota used up")
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    eventually(lambda: net_at(redis_server.url, "requests") == sum(admitted_by), "all that was admitted, at the hub")

    assert 60 == sum(admitted_by)


def test_what_holds_changes_at_the_moment_that_is_planned() -> None:
    """A contract that is to end says until when its terms hold."""
    contracts = contracts_of(customers={"acme": {"plan": "pro", "until": "2025-07-01T00:00:00Z", "then": "free"}})
    end_s = 1_751_328_000.0

    assert end_s == contracts.terms("acme").until
    assert ["pro", "free"] == [terms_of(contracts.document, "acme", at).plan for at in (end_s - 1, end_s)]


def test_a_meter_is_told_what_was_charged() -> None:
    """By customer and limit; a request that was refused is counted as such, and costs nothing."""
    clock = ManualClock(NOW_S)
    meter = Meter(clock)
    plans = {"p": {"limits": {"requests": {"limit": "8/hour", "costs": {"GET": 1, "POST": 3}}, "day": "100/day"}}}
    plans["p"]["limits"]["day"] = {"limit": "100/day", "costs": {"GET": 1, "POST": 1}}
    contracts = Contracts(Agent("memory://", clock=clock), {"plans": plans, "unknown": "p"}, meter=meter)
    answers = [contracts.hit("acme", kind=kind).allowed for kind in ("POST", "GET", "POST", "POST")]
    taken = {(each.key.identity, each.key.limit): each.counts for each in meter.take()}

    assert [True, True, True, False] == answers
    assert {("acme", "requests"): (7, 3, 1), ("acme", "day"): (3, 3, 1)} == taken


def test_a_limit_by_other_facts_has_other_keys_at_the_hub() -> None:
    """A former limit by the customer holds beside one by customer and user, and no key of one is one of the other."""
    plans = {"p": {"limits": {"requests": {"limit": "10/hour", "by": ["customer", "user"]}}}}
    former = [{"name": "requests", "limit": "10/hour", "until": "2030-01-01T00:00:00Z"}]
    contracts = contracts_of(plans, unknown="p", customers={"acme": {"plan": "p", "former": former}})

    assert [10, 0] == [admitted(contracts, "acme", 12, user=user) for user in ("ada", "bob")]
    assert 10 == admitted(contracts, "other", 12, user="ada")
    assert 10 == admitted(contracts, "acme|ada", 12, user="ada")


def test_a_shadow_never_refuses_and_kinds_are_for_limits_with_costs() -> None:
    """A request that a limit in shadow could never admit goes on; a limit without costs counts requests of any kind."""
    plans = {
        "p": {
            "limits": {
                "firm": {"limit": "9/hour", "costs": {"GET": 3}},
                "shadow": {"limit": "1/hour", "switch": "shadow"},
                "plain": "8/hour",
            }
        }
    }
    contracts = contracts_of(plans, unknown="p")
    answers = [contracts.hit("acme", 2, kind="GET") for _ in range(2)]

    assert [True, False] == [each.allowed for each in answers]
    assert not answers[0].decisions["shadow"].allowed
    assert {"firm": 6, "shadow": 0, "plain": 2} == {name: each.own for name, each in contracts.usages("acme").items()}


def test_keys_by_any_facts_move_with_their_plan() -> None:
    """Wherever the customer stands among the facts, if at all; a key that is too long moves when it is asked about."""
    by = {"a": ["user", "customer"], "b": ["user"], "c": ["customer", "user"], "d": ["customer"]}

    def document(quota: int) -> dict[str, Any]:
        limits = {name: {"limit": f"{quota}/hour", "by": facts} for name, facts in by.items()}
        return {"plans": {"p": {"limits": limits}}, "unknown": "p"}

    contracts = Contracts(Agent("memory://", clock=ManualClock(NOW_S)), document(5))
    admitted(contracts, "acme", 3, user="ada")
    contracts.replace(document(50))
    limiters = contracts.agent.limiters

    assert {name: 0 for name in limiters if "@5/" in name} == {
        name: len(each.control.table.cells) for name, each in limiters.items() if "@5/" in name
    }
    assert 47 == admitted(contracts, "acme", 60, user="ada")
    assert 50 == admitted(contracts, "x" * 400, 60, user="bob")


def test_a_cap_that_does_not_fit_a_customer_is_told_before_anything_changes() -> None:
    """And a former limit needs no cap, as it only tightens."""
    former = [{"name": "requests", "limit": "5/day", "until": "2030-01-01T00:00:00Z"}]
    contracts = contracts_of(caps={"requests": "60/second"}, customers={"acme": {"plan": "free", "former": former}})
    before = contracts.version
    with pytest.raises(InvalidContracts, match=r"customers\.acme\.limits\.requests: is 7/3600s"):
        contracts.replace({"plans": PLANS, "customers": {"acme": {"plan": "pro", "limits": {"requests": "7/hour"}}}}, 9)

    assert before == contracts.version
    assert 5 == admitted(contracts, "acme", 60)


BY_USER: dict[str, Any] = {"team": {"limits": {"calls": {"limit": "9/hour", "by": ["customer", "user"]}}}}


@pytest.mark.parametrize("customer", [7, b"acme", None, ["acme"]], ids=["number", "bytes", "none", "list"])
def test_a_customer_that_is_no_text_is_told_with_its_type(customer: Any) -> None:
    """By every method, and with the value that was given."""
    contracts = contracts_of()
    calls: list[Any] = [contracts.hit, contracts.test, contracts.explain, contracts.usages, contracts.reset]
    calls += [contracts.ask_blocking, lambda each: asyncio.run(contracts.ask(each))]
    calls += [lambda each: asyncio.run(contracts.forget(each))]
    said = []
    for call in calls:
        with pytest.raises(InvalidContracts) as raised:
            call(customer)
        said.append(str(raised.value))

    assert all(f"not {type(customer).__name__}" in each and str(customer) in each for each in said)


@pytest.mark.parametrize("user", [7, b"ada", None, ["ada"], ""], ids=["number", "bytes", "none", "list", "empty"])
def test_a_fact_that_is_no_text_is_told_with_its_type(user: Any) -> None:
    """With the fact, the limit and the value; nothing is charged."""
    contracts = contracts_of(BY_USER, unknown="team")
    calls: list[Any] = [contracts.hit, contracts.test, contracts.explain, contracts.usages, contracts.reset]
    calls += [contracts.ask_blocking, lambda name, **facts: asyncio.run(contracts.ask(name, **facts))]
    said = []
    for call in calls:
        with pytest.raises(InvalidKey) as raised:
            call("acme", user=user)
        said.append(str(raised.value))
    problem = "empty" if user == "" else "not None" if user is None else f"not {type(user).__name__}"

    assert all("'user'" in each and "'calls'" in each and problem in each for each in said)
    assert [] == contracts.standing("acme").parts[0][1].control.keys_beside()


def test_what_a_contract_has_used_is_forgotten() -> None:
    """By all facts, with what was counted for its bill; another customer's stays."""
    meter = Meter()
    agent = Agent("memory://", clock=ManualClock(NOW_S))
    contracts = Contracts(agent, {"plans": BY_USER, "unknown": "team"}, meter=meter)
    for customer in ("acme", "globex"):
        for user in ("ada", "bob"):
            contracts.hit(customer, user=user)

    done = asyncio.run(contracts.forget("acme"))

    assert (2, True) == (done.cells, done.complete)
    assert ["globex"] == list(contracts._standings)  # what is left in memory shows nowhere else
    used = [contracts.usages(each, user="ada")["calls"].total for each in ("acme", "globex")]
    assert [0, 1] == used
    assert {"globex"} == {taken.key.identity for taken in meter.take()}


def test_tables_of_past_quotas_are_dropped() -> None:
    """After 1,500 edits of one quota there is a table for the one in force, and use has counted on all the way."""
    contracts = contracts_of({"pro": {"limits": {"calls": "5/hour"}}}, unknown="pro")
    counts = []
    for quota in range(5, 1505):
        contracts.replace({"plans": {"pro": {"limits": {"calls": f"{quota}/hour"}}}, "unknown": "pro"})
        counts.append(admitted(contracts, "acme", 2 if quota == 5 else 1))

    assert [2, *[1] * 1499] == counts
    assert 1501 == contracts.usages("acme")["calls"].total
    assert ["calls@1504/3600s"] == list(contracts.agent.limiters)
    assert ["calls@1504/3600s"] == list(contracts.agent.stats().limits)


@pytest.mark.slow
@pytest.mark.parametrize("changes", ["quota", "window", "customer"])
def test_a_fleet_keeps_no_table_of_a_past_quota(changes: str, make_agent: MakeAgent, redis_server: RedisServer) -> None:
    """On a node with a hub, whatever changes: a plan's quota, its window, or a customer's own quota."""
    agent = make_agent(redis_server.url, sync_interval=0.02, min_sync_interval=0.01)
    contracts = Contracts(agent, {"plans": {"pro": {"limits": {"calls": "5/second"}}}, "unknown": "pro"})
    agent.start()
    for number in range(5, 35):
        limit = {"quota": f"{number}/second", "window": f"50/{number}00ms", "customer": "5/second"}[changes]
        own = {"plan": "pro", "limits": {"calls": f"{number}/second"}} if changes == "customer" else "pro"
        plans = {"pro": {"limits": {"calls": limit}}}
        contracts.replace({"plans": plans, "unknown": "pro", "customers": {"acme": own}})
        contracts.hit("acme")

    left = {"quota": 1, "window": 1, "customer": 2}[changes]
    eventually(lambda: left == len(agent.limiters) == len(agent.stats().limits), "the tables to be dropped")
    assert contracts.hit("acme").known


def test_no_use_is_lost_while_quotas_are_edited_under_load() -> None:
    """Threads ask by limiters that are dropped in between; each charge is in the one cell of the customer."""
    contracts = contracts_of({"pro": {"limits": {"calls": "1000000/hour"}}}, unknown="pro")
    done = threading.Event()
    counts: list[int] = []

    def ask() -> None:
        count = 0
        while not done.is_set():
            count += contracts.hit("acme").allowed
        counts.append(count)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(300):
        plans = {"pro": {"limits": {"calls": f"{1_000_000 + number}/hour"}}}
        contracts.replace({"plans": plans, "unknown": "pro"})
    done.set()
    for thread in threads:
        thread.join()
    contracts.replace({"plans": {"pro": {"limits": {"calls": "2000000/hour"}}}, "unknown": "pro"})

    assert sum(counts) == contracts.usages("acme")["calls"].total
    assert 1 == contracts.agent.stats().keys
    assert len(contracts.agent.limiters) <= 3


def test_a_limit_that_is_no_tier_is_not_dropped() -> None:
    """It stays with its agent, and the mistake is told; a tier that is not there any more is none."""
    agent = Agent("memory://")
    agent.limit("login", "5/hour")
    agent.drop_tiers(["login@5/hour"])

    with pytest.raises(InvalidSetting, match="login"):
        agent.drop_tiers(["login"])


@pytest.mark.parametrize("done_by", ["tier", "drop_tiers"])
def test_no_decision_waits_for_a_change_of_contracts(done_by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither while the new limits are declared nor while those of the past go: a customer is met meanwhile."""
    contracts = contracts_of(customers={"acme": {"plan": "free", "limits": {"requests": "70/second"}}})
    contracts.hit("acme")
    do, decided = getattr(contracts.agent, done_by), list[ContractDecision]()

    def with_a_decision(*arguments: Any, **named: Any) -> Any:
        if not decided and threading.current_thread() is threading.main_thread():
            threading.Thread(target=lambda: decided.append(contracts.hit("new")), daemon=True).start()
            eventually(lambda: decided, "the decision of another thread", 10.0)
        return do(*arguments, **named)

    monkeypatch.setattr(contracts.agent, done_by, with_a_decision)
    changed(contracts, acme={"plan": "free", "limits": {"requests": "80/second"}})

    assert [True] == [each.allowed for each in decided]


def test_the_lock_that_decisions_take_is_held_for_as_long_with_many_customers_as_with_few() -> None:
    """A document of a thousand customers takes as many steps under it as one of ten."""
    assert steps_under_lock(10) == steps_under_lock(1000)


def steps_under_lock(customers: int) -> int:
    """How many Python lines are run with the lock while another document comes into force, all customers being met."""
    said = {f"c{number}": "standard" for number in range(customers)}
    contracts = contracts_of(customers=said)
    for each in said:
        contracts.hit(each)
    counted = contracts._lock = Counted()
    counted.most = 0
    contracts.replace({"plans": PLANS | {"standard": {"limits": {"requests": "600/second"}}}, "unknown": "free"})
    assert counted.most
    return counted.most


class Counted:
    """In place of a lock: counts the lines that are run while it is held, of the longest time that it is."""

    def __init__(self) -> None:
        self.most = self._now = 0
        self._before: Any = None

    def __enter__(self) -> None:
        self._now, self._before = 0, sys.gettrace()
        sys.settrace(self._trace)
        frame = sys._getframe(1)
        frame.f_trace = self._trace

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)
        sys._getframe(1).f_trace = self._before
        self.most = max(self.most, self._now)

    def _trace(self, _frame: Any, event: str, _argument: object) -> Any:
        self._now += event == "line"
        return self._trace
