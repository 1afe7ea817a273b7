"""Goal: the console says what a change of contracts would do before it is made, and makes it for the version looked at.

Method: a console at a hub in memory with contracts, asked as a program asks; a node that uses some of them.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from reconverge import Agent, InvalidSetting
from reconverge.clock import SECOND_NS
from reconverge.contracts.central import CustomerRequest
from reconverge.contracts.contracts import Contracts
from reconverge.contracts.store.hub_book import HubBook
from reconverge.integrations.console import Recording, console
from reconverge.integrations.console.contracts import CUSTOMERS_SHOWN_MAX, RECORDED_MAX
from reconverge.published.envelope import Secrets
from reconverge_sync.memory import MemoryHub
from tests.integrations.console.conftest import SECRET
from tests.support.console import READS, TOKENS, WRITER, Browser
from tests.support.kept_contracts import shop
from tests.support.waiting import eventually

WRITES = {"authorization": f"Bearer {WRITER}"}
NOON_NS = 1_764_000_000 * SECOND_NS
ACME = {"plan": "pro", "limits": {"calls": "3/day"}}


def publish(hub: MemoryHub, **customers: Any) -> dict[str, Any]:
    """Publishes a document of three plans and these customers, and returns it."""
    document = shop(**customers)
    asyncio.run(HubBook(hub, "shop", Secrets(SECRET)).replace(document, author="grace"))
    return document


def about_acme(version: int = 1, **said: Any) -> dict[str, Any]:
    """A change of the contract of acme, as the page asks for it."""
    return {"customer": "acme", "said": {"plan": "pro", **said}, "version": version}


def test_plans_and_customers_are_listed_and_found(client: Browser, hub: MemoryHub) -> None:
    """A page shows some; the others are found by a part of their names."""
    publish(hub, **{f"customer-{number:03}": "free" for number in range(CUSTOMERS_SHOWN_MAX + 5)}, acme=ACME)

    told = client.get("/contracts", headers=READS).json()
    found = client.get("/contracts?find=acm", headers=READS).json()

    assert CUSTOMERS_SHOWN_MAX == len(told["customers"])
    assert CUSTOMERS_SHOWN_MAX + 6 == told["found"] == told["all"]
    assert {"free": 105, "pro": 1, "bucket": 0} == {each["name"]: each["customers"] for each in told["plans"]}
    assert ["acme"] == [each["identity"] for each in found["customers"]]


def test_a_customer_without_a_contract_stands_as_an_unknown_one(client: Browser, hub: MemoryHub) -> None:
    """With the plan that holds for those."""
    publish(hub)

    told = client.get("/customer?identity=ada", headers=READS).json()

    assert (None, "free") == (told["contract"], told["unknown"])
    assert "ada may send 50 requests a second" in told["standing"]["sentence"]


def test_a_change_is_predicted_from_what_was_used_and_changes_nothing(
    client: Browser, agent: Agent, hub: MemoryHub
) -> None:
    """A limit that is lowered below use refuses, and one that is raised has room, as soon as all nodes go by it."""
    document = publish(hub, acme=ACME)
    contracts = Contracts(agent, document, policy="strict")

    def used() -> bool:
        contracts.hit("acme")
        return "has sent 3" in client.get("/customer?identity=acme", headers=READS).json()["standing"]["sentence"]

    eventually(used, "acme to have used all")
    lower, higher = (
        client.post("/predict", json=about_acme(limits={"calls": f"{quota}/day"}), headers=READS).json()
        for quota in (2, 5)
    )

    assert "acme may send 2 requests a day and has sent 3; it can go on in " in lower["then"]
    assert higher["then"].startswith("acme may send 5 requests a day and has sent 3, and it may send 10 ")
    assert higher["then"].endswith("; it can go on now.")
    assert 1 == client.get("/customer?identity=acme", headers=READS).json()["version"]


def test_a_change_is_predicted_by_a_recording(agent: Agent, hub: MemoryHub) -> None:
    """Which requests of it would be newly refused or admitted, as `reconverge contracts plan` tells them."""
    publish(hub, acme=ACME)
    recording = Recording("a.csv", [CustomerRequest(NOON_NS + number * SECOND_NS, "acme") for number in range(6)])
    with Browser(console(agent, tokens=TOKENS, settings_secret=SECRET, recording=recording)) as client:
        changed = about_acme(limits={"calls": "1/day"})
        told = client.post("/predict", json=changed, headers=READS).json()

    assert {
        "name": "a.csv",
        "requests": 6,
        "customers": 1,
        "newly_refused": 2,
        "newly_admitted": 0,
        "refused": [{"customer": "acme", "limits": ["calls"], "requests": 2, "of": 6}],
        "admitted": [],
    } == told["recording"]


def test_a_recording_has_an_end_and_a_use(agent: Agent) -> None:
    """One that is too long, or that predicts nothing, is refused at the start."""
    long = Recording("a.csv", [CustomerRequest(NOON_NS, "acme")] * (RECORDED_MAX + 1))
    with pytest.raises(InvalidSetting, match="more than 200000 requests"):
        console(agent, tokens=TOKENS, settings_secret=SECRET, recording=long)
    with pytest.raises(
        InvalidSetting, match="has an effect only with a settings_secret, with which contracts are read; give both"
    ):
        console(agent, tokens=TOKENS, recording=Recording("a.csv", []))


def test_a_change_is_made_by_its_author_for_the_version_that_was_looked_at(client: Browser, hub: MemoryHub) -> None:
    """A second one for the same version is refused, and told of."""
    publish(hub, acme=ACME)

    first = client.post("/change", json=about_acme(limits={"calls": "5/day"}), headers=WRITES)
    second = client.post("/change", json=about_acme(limits={"calls": "9/day"}), headers=WRITES)

    assert (200, {"version": 2}) == (first.status_code, first.json())
    assert (409, 2) == (second.status_code, second.json()["version"])
    newest = client.get("/history", headers=READS).json()["changes"][0]
    assert ("write", "acme", 2) == (newest["by"], newest["identity"], newest["version"])
    assert "5/86400s" == newest["after"]["limits"]["calls"]["limit"]


def test_reading_is_not_changing(client: Browser, hub: MemoryHub) -> None:
    """A token that may read predicts a change, and makes none."""
    publish(hub, acme=ACME)

    assert 200 == client.post("/predict", json=about_acme(), headers=READS).status_code
    assert 403 == client.post("/change", json=about_acme(), headers=READS).status_code


@pytest.mark.parametrize("path", ["/predict", "/change"])
@pytest.mark.parametrize(
    ("said", "status"),
    [
        (about_acme(plan="none"), 422),
        (about_acme(limits={"calls": "many"}), 422),
        (about_acme(version=7), 409),
        ({"customer": "acme", "said": "pro"}, 422),
        ({"said": "pro", "version": 1}, 422),
        ({"customer": "acme", "plan": "pro", "said": "pro", "version": 1}, 422),
        ({"customer": 7, "said": "pro", "version": 1}, 422),
        ({"customer": "", "said": "pro", "version": 1}, 422),
        ({"plan": "none", "said": {"limits": {}}, "version": 1}, 422),
        ({"plan": "pro", "said": None, "version": 1}, 422),
        ({"plan": "pro", "said": {"limits": {"calls": 7}}, "version": True}, 422),
        ({"plan": "pro", "said": "x" * 70_000, "version": 1}, 413),
        (["acme"], 422),
    ],
)
def test_what_makes_no_sense_changes_nothing(
    client: Browser, hub: MemoryHub, path: str, said: object, status: int
) -> None:
    """And says what is wrong, as problem details."""
    publish(hub, acme=ACME)

    response = client.post(path, json=said, headers=WRITES)

    assert (status, "application/problem+json") == (response.status_code, response.headers["content-type"])
    assert 1 == client.get("/contracts", headers=READS).json()["version"]


def test_a_limit_that_counts_by_further_facts_is_no_error(client: Browser, hub: MemoryHub) -> None:
    """How the customer stands is not one answer then, which the page says."""
    document = {"unknown": "a", "plans": {"a": {"limits": {"calls": {"limit": "5/day", "by": ["customer", "user"]}}}}}
    asyncio.run(HubBook(hub, "shop", Secrets(SECRET)).replace(document, author="grace"))

    told = client.get("/customer?identity=acme", headers=READS).json()

    assert (None, "limit 'calls' counts each 'user' separately, so the customer has no common count") == (
        told["standing"],
        told["problem"],
    )


def test_contracts_that_another_secret_has_signed_are_not_believed(client: Browser, hub: MemoryHub) -> None:
    """They are not shown, and not replaced."""
    asyncio.run(HubBook(hub, "shop", Secrets("another-secret-of-16-bytes")).replace(shop(), author="mallory"))

    assert 503 == client.get("/contracts", headers=READS).status_code
    assert 503 == client.post("/change", json=about_acme(), headers=WRITES).status_code


def test_without_a_hub_there_are_no_contracts(make_agent: Any) -> None:
    """Which is said, and is no failure of a hub."""
    with Browser(console(make_agent("memory://"), tokens=TOKENS, settings_secret=SECRET)) as client:
        response = client.get("/contracts", headers=READS)

    assert (501, "no contracts are kept at this hub; use a Redis or a broker of MQTT") == (
        response.status_code,
        response.json()["detail"],
    )
