"""Goal: a document is what its pages say, a change changes few of them, and no other bytes are taken for one.

Method: divide documents, change them, damage their pages, and put them together again.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconverge.contracts.document import checked, checked_customer
from reconverge.contracts.model import Document, InvalidContracts
from reconverge.contracts.store.fetching import MissingPage, Pages
from reconverge.contracts.store.index import INDEX_BYTES_MAX
from reconverge.contracts.store.pages import (
    PAGE_BYTES_MAX,
    PAGE_BYTES_WANTED,
    PAGES_MAX,
    DamagedPage,
    Divided,
    digest_of,
    divided,
    page_number,
    payload_of,
    plans_in,
    table_in,
)
from tests.support.kept_contracts import PLANS, many, shop

BUSY = {
    "plan": "pro",
    "limits": {"calls": "2000/second", "reports": {"limit": "5/day", "algorithm": "sliding-window"}},
    "since": "2026-11-23T12:00:00Z",
    "until": "2026-12-23T12:00:00.000123Z",
    "then": "free",
    "switch": {"to": "shadow", "percent": 12.5, "until": "2026-12-01T00:00:00Z"},
    "switches": {"reports": "off"},
    "former": [{"name": "calls", "limit": "7/minute", "algorithm": "token-bucket", "until": "2026-11-24T00:00:00Z"}],
    "note": "é and \u2028, a line separator",
}
DOCUMENTS = {
    "none": shop(),
    "one": shop(ada="pro"),
    "own algorithm": shop(ada={"plan": "bucket", "limits": {"calls": {"limit": "7/minute"}}}),
    "own window": shop(ada={"plan": "bucket", "limits": {"calls": "7/day"}}),
    "busy": shop(ada=BUSY, bob="free", **{"\ud800": "pro"}),
    "many": many(3000),
}


def joined(parts: Divided) -> Document:
    """Reads the document back from its pages."""
    return Pages().of_payloads(parts.pages, parts.outline)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_is_what_its_pages_say(name: str) -> None:
    """Any document comes back, and makes the same pages again: nodes restore a hub with them."""
    document = checked(DOCUMENTS[name])
    parts = divided(document)

    assert document == joined(parts)
    assert parts == divided(joined(parts))


@given(
    st.dictionaries(st.text(st.characters(exclude_characters="\x00"), min_size=1, max_size=20), st.just("free")),
    st.sampled_from([1, 2, 4, 8]),
)
def test_customers_of_any_name_are_found_again(customers: dict[str, str], pages: int) -> None:
    """On whatever number of pages."""
    document = checked(shop(**customers))

    assert document == joined(divided(document, pages=pages))


def test_a_change_of_one_customer_changes_one_page() -> None:
    """Of 10,000 customers on 20 plans; all pages are short, and so are their digests in the index."""
    document = checked(many(10_000))
    before = divided(document)
    said = many(10_000)
    said["customers"]["customer-000007"] = "plan-1"
    after = divided(checked(said), pages=len(before.outline.customers))

    changed = [
        one for one, other in zip(before.outline.customers, after.outline.customers, strict=True) if one != other
    ]
    assert 1 == len(changed)
    assert before.outline.plans == after.outline.plans
    assert max(map(len, before.pages.values())) <= PAGE_BYTES_WANTED
    assert 8 <= len(before.outline.customers) <= 32
    assert len(json.dumps(before.outline)) < INDEX_BYTES_MAX // 2


def test_a_change_of_a_plan_changes_its_page_alone() -> None:
    """The pages of customers stay the same."""
    before = divided(checked(many(3000)))
    said = many(3000)
    said["plans"]["plan-3"] = {"limits": {"calls": "1/minute"}}
    after = divided(checked(said))

    assert before.outline.customers == after.outline.customers
    assert before.outline.plans != after.outline.plans


def test_the_number_of_pages_stays_until_it_does_not_fit() -> None:
    """It grows as soon as a page is too long, and shrinks when there are more than 8 times too many."""
    numbers = [
        len(divided(checked(many(customers)), pages=pages).outline.customers)
        for customers, pages in (
            (10, None),
            (10, 2),
            (10, 8),
            (10, 16),
            (3000, 1),
            (3000, 16),
            (3000, 64),
        )
    ]

    assert [1, 2, 8, 1] == numbers[:4]
    assert [2, 16, 2] == numbers[4:]


def test_the_most_customers_go_on_256_pages() -> None:
    """Four thousand with as long a note as may be, of which each page has less than it may."""
    document = checked(shop())
    customer = checked_customer("ada", {"plan": "free", "note": "é" * 1000}, document.plans)
    parts = divided(Document(document.plans, {f"c{number}": customer for number in range(4_000)}, document.unknown))

    assert PAGES_MAX == len(parts.outline.customers)
    assert PAGE_BYTES_WANTED < max(map(len, parts.pages.values())) <= PAGE_BYTES_MAX


def test_a_document_that_fits_on_no_pages_is_refused() -> None:
    """Before anything is sent; it says what is too long."""
    document = checked(shop())
    notes = {
        f"c{number}": checked_customer("ada", {"plan": "free", "note": "é" * 1000}, document.plans)
        for number in range(12_000)
    }
    with pytest.raises(InvalidContracts, match=r"^the customers on one of 256 pages take \d+ bytes, and at most"):
        divided(Document(document.plans, notes, document.unknown))
    costs = {f"a kind of request, {number}": 1 for number in range(100)}
    limits = {f"limit-{number}": {"limit": "1/second", "costs": costs} for number in range(100)}
    said = {"plans": {"free": {"limits": limits}}}
    with pytest.raises(InvalidContracts, match=r"^the plans take \d+ bytes, and at most 262144 fit; shorten entries$"):
        divided(checked(said))


def test_other_bytes_are_not_the_page() -> None:
    """Cut, changed, longer, empty, too long, or something else that has the right digest."""
    page = payload_of({"ada": {"plan": "pro"}})
    digest = digest_of(page)
    assert {"ada": {"plan": "pro"}} == table_in(page, digest)
    for wrong in (
        page[:-1],
        page[:-1] + b"]",
        page + b" ",
        b"",
        page.replace(b"pro", b"own"),
        b" " * (PAGE_BYTES_MAX + 1),
    ):
        with pytest.raises(DamagedPage):
            table_in(wrong, digest)
    for nonsense in (b"", b"{", b"\xff", b"[" * 100_000):
        with pytest.raises(DamagedPage, match="is not JSON"):
            table_in(nonsense, digest_of(nonsense))
    long = payload_of("x" * PAGE_BYTES_MAX)
    with pytest.raises(DamagedPage, match="at most 262144 are read"):
        table_in(long, digest_of(long))


def test_a_page_is_taken_from_no_other_place() -> None:
    """Customers on the page of others, plans with customers, a missing page, a page of customers that is a list."""
    parts = divided(checked(shop(ada="pro", bob="free", cyd="pro", dan="free")), pages=2)
    plans, (first, second) = parts.outline
    with pytest.raises(InvalidContracts, match=r"this customer is on page 0 of 2, but belongs on another"):
        Pages().of_payloads(parts.pages, parts.outline._replace(customers=(second, first)))
    with pytest.raises(MissingPage, match=second):
        Pages().of_payloads({plans: parts.pages[plans], first: parts.pages[first]}, parts.outline)
    with pytest.raises(
        InvalidContracts, match=r"^customers: the page of plans has customers, which must be on other pages; publish"
    ):
        plans_in(shop(ada="pro"))
    odd = payload_of([])
    with pytest.raises(InvalidContracts, match=r"^customers: page \d+ of \d+ is .*, not a table of customers"):
        Pages().of_payloads(
            {plans: parts.pages[plans], digest_of(odd): odd}, parts.outline._replace(customers=(digest_of(odd),))
        )


def test_what_is_known_of_customers_is_checked_again_for_other_plans() -> None:
    """The page is the same and was read before; that its customers are on a plan that is gone is seen all the same."""
    known = Pages()
    whole = divided(checked(shop(ada="pro")))
    without = divided(checked({"plans": {"free": {"limits": {"calls": "1/day"}}}}))
    known.of_payloads(whole.pages, whole.outline)
    with pytest.raises(InvalidContracts, match=r"^customers\.ada\.plan: there is no plan 'pro'"):
        known.of_payloads({**whole.pages, **without.pages}, whole.outline._replace(plans=without.outline.plans))


def test_customers_stay_on_their_page_in_all_versions_to_come() -> None:
    """These numbers are part of what travels: another division would make all nodes read all pages."""
    numbers = [page_number(identity, 256) for identity in ("ada", "bob", "", "\ud800")]

    assert [253, 129, 227, 145] == numbers
    assert [number % 16 for number in numbers] == [page_number(each, 16) for each in ("ada", "bob", "", "\ud800")]


def test_the_plans_keep_their_order() -> None:
    """The first plan is asked first."""
    said: dict[str, Any] = {"plans": dict.fromkeys(("z", "a", "m"), PLANS["plans"]["pro"])}

    assert ["z", "a", "m"] == list(joined(divided(checked(said))).plans)
