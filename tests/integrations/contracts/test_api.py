"""Goal: contracts are read, changed, explained and rolled back over HTTP as the book has them.

Method: an application in this process on a book in memory, and clients that send requests to it.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from reconverge import Agent
from reconverge.contracts.contracts import Contracts
from reconverge.contracts.following import follow_hub
from reconverge.contracts.store.index import INDEX, seal_index
from reconverge.integrations.contracts.api import contracts_api
from reconverge.published.envelope import Rejection, Secrets
from reconverge.testing import ManualClock
from reconverge_sync.memory import MemoryHub
from tests.support.contracts import READER, TABLE, TOKENS, ApiClient, FilledBook, LocalContracts
from tests.support.kept_contracts import book_at, shop
from tests.support.published import SECRET
from tests.support.waiting import eventually

# -------------------------------------------------------------------- reading


def test_the_contract_of_one_customer_is_read(reader: ApiClient) -> None:
    """With the version of the contracts as its entity tag."""
    answer = reader.get("/contracts/acme")

    assert (200, TABLE["customers"]["acme"]) == (answer.status_code, answer.json())
    assert '"1"' == answer.headers["etag"]
    assert "application/json" == answer.headers["content-type"]


@pytest.mark.parametrize("path", ["/contracts/globex%2Feu", "/contracts/globex/eu"])
def test_an_identity_may_have_slashes(reader: ApiClient, path: str) -> None:
    """Whether they are encoded or not, as proxies decode them."""
    assert {"plan": "pro"} == reader.get(path).json()


@pytest.mark.parametrize(
    "identity", ["a b", "a%0Ab", "%F0%9F%A6%8A", "a%2F", "%2Fexplain", "x%2Freset", "x%2Fforget", "%25", "%3F%23"]
)
def test_an_identity_is_any_text(writer: ApiClient, identity: str) -> None:
    """It is found again as it was written, line feeds, emoji and words of paths included."""
    written = writer.put(f"/contracts/{identity}", "pro")
    read = writer.get(f"/contracts/{identity}")
    explained = writer.get(f"/customers/{identity}/explain")

    assert 201 == written.status_code
    assert {"plan": "pro"} == read.json()
    assert 200 == explained.status_code


def test_a_customer_without_a_contract_is_not_found(reader: ApiClient) -> None:
    """The plan for unknown customers holds for it, and it has no contract to read."""
    answer = reader.get("/contracts/initech")

    assert (404, "application/problem+json") == (answer.status_code, answer.headers["content-type"])
    assert 404 == answer.json()["status"]


def test_contracts_are_listed_by_identity_page_by_page(writer: ApiClient) -> None:
    """Each page names where the next begins, and the last names nothing."""
    for name in ("initech", "hooli"):
        writer.put(f"/contracts/{name}", "free")
    pages, after = [], None
    while True:
        page = writer.get("/contracts", params={"limit": 3} | ({} if after is None else {"after": after})).json()
        pages.append([each["identity"] for each in page["contracts"]])
        after = page["next"]
        if after is None:
            break

    assert [["acme", "globex/eu", "hooli"], ["initech"]] == pages


def test_a_page_that_ends_with_the_list_names_no_next_one(reader: ApiClient) -> None:
    """Both sides of the edge: a page of two of two contracts, and a page of one."""
    assert None is reader.get("/contracts?limit=2").json()["next"]
    assert "acme" == reader.get("/contracts?limit=1").json()["next"]


def test_a_list_is_of_the_version_that_it_says(writer: ApiClient) -> None:
    """A customer that is added between two lists is in the second, which is another version."""
    before = writer.get("/contracts").json()
    writer.put("/contracts/aaa", "free")
    after = writer.get("/contracts").json()

    assert [1, 2] == [before["version"], after["version"]]
    assert ["aaa", "acme", "globex/eu"] == [each["identity"] for each in after["contracts"]]


def test_plans_are_read(reader: ApiClient) -> None:
    """With the plan of unknown customers."""
    said = reader.get("/plans").json()

    assert (1, "free", {"free", "pro"}) == (said["version"], said["unknown"], set(said["plans"]))
    assert {"limit": "5/60s", "by": ["customer", "user"]} == said["plans"]["pro"]["limits"]["by-user"]


def test_a_document_that_is_read_can_be_written_back(writer: ApiClient) -> None:
    """It says the same afterwards, as the next version."""
    before = writer.get("/document").json()
    answer = writer.put("/document", before)

    assert (200, {"version": 2}) == (answer.status_code, answer.json())
    assert before == writer.get("/document").json()


def test_an_empty_book_is_read_as_version_0(clock: ManualClock) -> None:
    """A document without plans, and lists without anything."""
    client = ApiClient(contracts_api(FilledBook(clock), tokens=TOKENS))

    assert {"unknown": "refused", "plans": {}, "customers": {}} == client.get("/document").json()
    assert {"version": 0, "contracts": [], "next": None} == client.get("/contracts").json()
    assert 422 == client.put("/contracts/acme", "free").status_code


def test_head_is_answered_as_get_without_a_body(reader: ApiClient) -> None:
    """With the same fields."""
    got, head = reader.get("/contracts/acme"), reader.send("HEAD", "/contracts/acme")

    assert (200, b"") == (head.status_code, head.content)
    assert got.headers == head.headers


# -------------------------------------------------------------------- changing


def test_a_contract_that_is_new_is_created(writer: ApiClient) -> None:
    """And answered 201 with the version since; the same once more is a change, answered 200."""
    first = writer.put("/contracts/initech", {"plan": "pro", "note": "by phone"})
    second = writer.put("/contracts/initech", "free")

    assert [(201, {"version": 2}), (200, {"version": 3})] == [(a.status_code, a.json()) for a in (first, second)]
    assert ['"2"', '"3"'] == [each.headers["etag"] for each in (first, second)]
    assert {"plan": "free"} == writer.get("/contracts/initech").json()


def test_a_contract_is_ended(writer: ApiClient) -> None:
    """Afterwards there is none, and none can be ended again."""
    answers = [writer.delete("/contracts/acme") for _ in range(2)]

    assert [200, 404] == [each.status_code for each in answers]
    assert 404 == writer.get("/contracts/acme").status_code


def test_history_says_which_token_has_made_a_change(writer: ApiClient, clock: ManualClock) -> None:
    """By its name, with the time, and with what was said before and since."""
    clock.advance(60)
    writer.put("/contracts/acme", "pro")
    newest, oldest = writer.get("/history").json()["changes"]

    assert {
        "version": 2,
        "by": "console",
        "when": "2023-11-14T22:14:20Z",
        "identity": "acme",
        "before": {"plan": "free", "limits": {"burst": "60/second"}, "note": "since 2019"},
        "after": {"plan": "pro"},
    } == newest
    assert (1, None) == (oldest["version"], oldest["identity"])


def test_history_is_of_one_customer_and_of_so_many_changes(writer: ApiClient) -> None:
    """The query names both."""
    for plan in ("pro", "free", "pro"):
        writer.put("/contracts/acme", plan)
    writer.put("/contracts/hooli", "free")

    assert [4, 3] == [each["version"] for each in writer.get("/history?identity=acme&most=2").json()["changes"]]
    assert [5] == [each["version"] for each in writer.get("/history?most=1").json()["changes"]]


def test_a_rollback_brings_back_a_former_version_as_a_new_one(writer: ApiClient) -> None:
    """The version rises all the same."""
    before = writer.get("/document").json()
    writer.put("/contracts/acme", "pro")
    answer = writer.post("/rollback", {"version": 1})

    assert (200, {"version": 3}, '"3"') == (answer.status_code, answer.json(), answer.headers["etag"])
    assert before == writer.get("/document").json()


def test_a_version_that_is_not_kept_is_told_by_its_field(writer: ApiClient) -> None:
    """Nothing has changed then."""
    answer = writer.post("/rollback", {"version": 7})

    assert (404, "/version") == (answer.status_code, answer.json()["errors"][0]["pointer"])
    assert '"1"' == writer.get("/document").headers["etag"]


def test_what_makes_no_sense_is_told_with_its_field(writer: ApiClient) -> None:
    """A JSON Pointer leads into the body, of a contract and of a document; slashes in names are escaped."""
    contract = writer.put("/contracts/acme", {"plan": "free", "limits": {"burst": "50/fortnight"}})
    document = writer.put("/document", {**TABLE, "customers": {"a/b~c": {"plan": "gold"}}})

    assert [422, 422] == [contract.status_code, document.status_code]
    assert ["/limits/burst", "/customers/a~1b~0c/plan"] == [
        each.json()["errors"][0]["pointer"] for each in (contract, document)
    ]
    assert "there is no plan 'gold'; known: free, pro" == document.json()["detail"]


# -------------------------------------------------------------------- versions


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"If-Match": '"1"'}, 200),
        ({"If-Match": '"7", "1"'}, 200),
        ({"If-Match": "*"}, 200),
        ({"If-None-Match": '"7"'}, 200),
        ({"If-Match": '"2"'}, 412),
        ({"If-Match": 'W/"1"'}, 412),
        ({"If-Match": '"not-ours"'}, 412),
        ({"If-None-Match": "*"}, 412),
        ({"If-None-Match": 'W/"1"'}, 412),
        ({"If-Match": "1"}, 400),
        ({"If-Match": '"1'}, 400),
        ({"If-Match": '"' + "1" * 2000 + '"'}, 400),
    ],
)
def test_a_change_is_made_on_its_conditions(writer: ApiClient, fields: dict[str, str], status: int) -> None:
    """RFC 9110 defines them; a condition that cannot be read is no condition that holds."""
    answer = writer.put("/contracts/acme", "pro", headers=fields)

    assert status == answer.status_code
    assert ("pro" if status == 200 else "free") == writer.get("/contracts/acme").json()["plan"]


def test_a_change_for_another_version_is_told_the_version_that_there_is(writer: ApiClient) -> None:
    """In the entity tag and in the problem, so that the client can look again."""
    answer = writer.delete("/contracts/acme", headers={"If-Match": '"0"'})

    assert (412, '"1"', 1) == (answer.status_code, answer.headers["etag"], answer.json()["version"])


@pytest.mark.parametrize(("fields", "status"), [({"If-None-Match": "*"}, 201), ({"If-Match": "*"}, 412)])
def test_a_contract_is_created_only_if_there_is_none(writer: ApiClient, fields: dict[str, str], status: int) -> None:
    """With `If-None-Match: *`; `If-Match: *` is about one that is there."""
    assert status == writer.put("/contracts/initech", "pro", headers=fields).status_code


@pytest.mark.parametrize("path", ["/contracts", "/contracts/acme", "/plans", "/document"])
def test_what_a_client_has_already_is_not_sent_again(writer: ApiClient, path: str) -> None:
    """Until it has changed."""
    tag = writer.get(path).headers["etag"]
    same = writer.get(path, headers={"If-None-Match": tag})
    writer.put("/contracts/acme", "pro")
    other = writer.get(path, headers={"If-None-Match": tag})

    assert (304, b"", tag) == (same.status_code, same.content, same.headers["etag"])
    assert 200 == other.status_code


class BookOfTwo(FilledBook):
    """A book that another client changes between the reading and the writing of each request."""

    async def set_customer(self, identity, said, *, author, expected=None):  # type: ignore[no-untyped-def]
        await super().set_customer("other", "pro", author="another client")
        return await super().set_customer(identity, said, author=author, expected=expected)


def test_a_change_that_comes_in_between_is_a_conflict(clock: ManualClock) -> None:
    """The condition held when the contracts were read, and does not when they are written: nothing is lost."""
    client = ApiClient(contracts_api(BookOfTwo(clock, TABLE), tokens=TOKENS))
    answer = client.put("/contracts/acme", "pro", headers={"If-Match": '"1"'})

    assert (412, 2) == (answer.status_code, answer.json()["version"])
    assert {"other": "pro", "acme": "free", "globex/eu": "pro"} == {
        each["identity"]: each["contract"]["plan"] for each in client.get("/contracts").json()["contracts"]
    }


# -------------------------------------------------------------------- how customers stand


def test_a_customer_that_is_refused_is_told_why_and_until_when(reader: ApiClient, contracts: LocalContracts) -> None:
    """With all numbers, and with a sentence that can be pasted into an answer."""
    contracts.hit("acme", 60)
    said = reader.get("/customers/acme/explain").json()

    assert (False, ["burst"], "free") == (said["allowed"], said["refused_by"], said["plan"])
    assert [(60, 60, 0), (1000, 60, 940)] == [
        (each["quota"], each["used"], each["remaining"]) for each in said["limits"]
    ]
    assert said["sentence"].startswith("acme may send 60 requests a second and has sent 60; it can go on in ")


def test_facts_of_a_request_are_parameters(reader: ApiClient, contracts: LocalContracts) -> None:
    """A limit by user tells of that user; without the fact the parameter is named."""
    contracts.hit("globex/eu", 5, user="ada")
    ada, bob = (reader.get("/customers/globex%2Feu/explain", params={"user": user}) for user in ("ada", "bob"))
    none = reader.get("/customers/globex%2Feu/explain")

    assert [False, True] == [ada.json()["allowed"], bob.json()["allowed"]]
    assert (400, "user") == (none.status_code, none.json()["parameter"])


def test_a_customer_is_reset(writer: ApiClient, contracts: LocalContracts) -> None:
    """It can go on at once; of a limit by user, that user."""
    contracts.hit("acme", 60)
    contracts.hit("globex/eu", 5, user="ada")
    answers = [
        writer.post("/customers/acme/reset"),
        writer.post("/customers/globex%2Feu/reset", {"facts": {"user": "ada"}}),
    ]

    assert [204, 204] == [each.status_code for each in answers]
    assert contracts.explain("acme").allowed
    assert contracts.explain("globex/eu", user="ada").allowed


def test_a_customer_is_forgotten(book: FilledBook, agent: Agent) -> None:
    """It stands in no contract and no version, has used nothing, and another customer stays as it was."""
    contracts = Contracts(agent, TABLE)
    writer = ApiClient(contracts_api(book, tokens=TOKENS, contracts=contracts))
    writer.put("/contracts/acme", "pro")
    for customer in ("acme", "globex/eu"):
        contracts.hit(customer, user="ada")

    answer = writer.post("/customers/acme/forget")

    said = {"version": 3, "complete": True, "cells": 2, "kept": 0, "rows": 0, "problem": ""}
    assert (200, said) == (answer.status_code, answer.json())
    assert "acme" not in writer.get("/history").text + writer.get("/document").text
    assert 404 == writer.get("/contracts/acme").status_code
    assert [0, 1] == [contracts.usages(name, user="ada")["burst"].total for name in ("acme", "globex/eu")]
    assert [3, 3] == [writer.post(f"/customers/{name}/forget").json()["version"] for name in ("acme", "stranger")]


def test_what_cannot_be_forgotten_is_said(book: FilledBook) -> None:
    """Without contracts in force the contract goes alone, and the answer says what stays and what erases it."""
    said = ApiClient(contracts_api(book, tokens=TOKENS)).post("/customers/acme/forget").json()

    assert (2, False) == (said["version"], said["complete"])
    assert "reconverge forget" in said["problem"]


def test_without_contracts_in_force_there_are_no_routes_about_them(book: FilledBook) -> None:
    """Neither served nor in the OpenAPI document, but for the one that erases a customer from the contracts."""
    client = ApiClient(contracts_api(book, tokens=TOKENS))

    paths = [path for path in client.get("/openapi.json").json()["paths"] if path.startswith("/customers")]

    assert 404 == client.get("/customers/acme/explain").status_code
    assert ["/customers/{identity}/forget"] == paths


def test_what_a_node_has_refused_to_obey_is_counted_by_its_reason(book: FilledBook) -> None:
    """A forged index, an old one that is put there again, and one that is over; the last good one is obeyed."""
    hub = MemoryHub()
    with Agent(hub, namespace="shop", sync_interval=0.02, exchange_timeout=5.0) as agent:
        contracts = Contracts(agent, {"plans": {"p": {"limits": {"calls": "1/day"}}}})
        reader = follow_hub(contracts, secret=SECRET)
        api = ApiClient(contracts_api(book, tokens=TOKENS, contracts=contracts), token=READER)
        before = api.get("/status").json()
        payloads: list[bytes] = []
        for version in (1, 2):
            asyncio.run(book_at(hub).replace(shop(), author="root"))
            eventually(lambda version=version: contracts.version == version, "the version")  # type: ignore[misc]
            assert hub._index is not None
            payloads.append(hub._index[0])
        index = INDEX.opened(payloads[1], Secrets(SECRET), "shop")
        assert not isinstance(index, Rejection)
        over = seal_index(replace(index, version=3, issued=1, expires=2), Secrets(SECRET))
        for payload, reason in ((payloads[1][:-1] + b"?", "forged"), (payloads[0], "old"), (over, "expired")):
            hub._index = payload, 1 << 62
            eventually(lambda reason=reason: reader.stats().rejected.get(reason) == 1, reason)  # type: ignore[misc]
        after = api.get("/status").json()

    assert {"version": 0, "follows": True, "accepted": 0, "rejected": {}, "failures": {}} == {
        name: before[name] for name in ("version", "follows", "accepted", "rejected", "failures")
    }
    assert (2, True, 2, {"forged": 1, "old": 1, "expired": 1}) == tuple(
        after[name] for name in ("version", "follows", "accepted", "rejected")
    )


def test_the_status_of_other_explainers_is_that_they_follow_none(reader: ApiClient) -> None:
    """The contracts that they obey are not known."""
    assert {
        "version": None,
        "follows": False,
        "accepted": 0,
        "rejected": {},
        "failures": {},
        "expires_in_s": None,
        "restored": 0,
    } == reader.get("/status").json()


def test_a_fact_by_which_no_limit_counts_is_refused(book: FilledBook, reader: ApiClient) -> None:
    """It may be misspelt; one by which another customer's limits count is not, so a console may always send it."""
    contracts = Contracts(Agent("memory://"), TABLE)
    api = ApiClient(contracts_api(book, tokens=TOKENS, contracts=contracts), token=READER)
    wrong = api.get("/customers/acme/explain?user=ada&usr=bob")
    missing = reader.get("/customers/globex%2Feu/explain").json()

    assert (400, "usr") == (wrong.status_code, wrong.json()["parameter"])
    assert "no limit counts by 'usr'; limits count by: user; did you mean 'user'?" == wrong.json()["detail"]
    assert 200 == api.get("/customers/acme/explain?user=ada").status_code
    assert "limit 'by-user' counts by 'user', which the request does not give; add ?user=..." == missing["detail"]
