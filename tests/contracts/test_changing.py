"""Goal: no change of contracts forgives use, and none has a customer refused for what does not count any more.

Method: changes of documents, and what holds for a customer after them.
"""

from __future__ import annotations

from typing import Any

import pytest

from reconverge.contracts.document import checked
from reconverge.contracts.model import Document, InvalidContracts
from reconverge.contracts.store.changing import change_note, with_customer, with_document
from reconverge.contracts.terms import terms_of
from reconverge.contracts.writing import table_of_customer, written_moment
from tests.support.kept_contracts import shop

NOW_S = 1_000_000.0
BUCKET = {"plan": "free", "limits": {"calls": {"limit": "60/minute", "algorithm": "token-bucket"}}}


def holding(document: Document, identity: str = "ada", now_s: float = NOW_S) -> list[tuple[str, str | None, bool]]:
    """The limits that hold for a customer: name, algorithm, and whether it is a former one."""
    return [(term.name, term.limit.algorithm, term.former) for term in terms_of(document, identity, now_s).terms]


def changed(said: Any, *, now_s: float = NOW_S, before: Document | None = None) -> Document:
    """Puts ada on that contract, from the plan `free`."""
    return with_customer(before or checked(shop(ada="free")), "ada", said, now_s=now_s)


def until(document: Document, identity: str = "ada") -> list[float]:
    """Until when each former limit holds, in seconds from now."""
    return [each.until - NOW_S for each in document.customers[identity].former]


def test_another_quota_leaves_nothing_behind() -> None:
    """The counts are the same ones."""
    for said in ("pro", {"plan": "free", "limits": {"calls": "70/second"}}, {"plan": "free", "switch": "shadow"}):
        assert () == changed(said).customers["ada"].former


def test_a_limit_that_is_counted_otherwise_goes_on_holding() -> None:
    """For two windows of a second, which is for how long the sliding window counts; then it is over."""
    document = changed(BUCKET)

    assert [("calls", "token-bucket", False), ("calls", "sliding-window", True)] == holding(document)
    assert [2.0] == until(document)
    assert [("calls", "token-bucket", False)] == holding(document, now_s=NOW_S + 2.0)


def test_a_bucket_goes_on_holding_until_it_has_drained() -> None:
    """A minute for as much as its quota, and longer with a burst."""
    wide = {"plan": "free", "limits": {"calls": {"limit": "60/minute burst 120", "algorithm": "token-bucket"}}}

    assert [60.0] == until(changed("free", before=changed(BUCKET, now_s=NOW_S - 1000)))
    assert [120.0] == until(changed("free", before=changed(wide, now_s=NOW_S - 1000)))


def test_another_plan_is_such_a_change_as_well() -> None:
    """The customer's entry says what held before, as text that is read again."""
    document = changed("bucket")

    assert [("calls", "token-bucket", False), ("calls", "sliding-window", True)] == holding(document)
    assert document.customers["ada"] == checked(shop(ada=table_of_customer(document.customers["ada"]))).customers["ada"]


def test_a_change_of_a_plan_is_one_for_all_of_its_customers() -> None:
    """And for no others: bob has a bucket of his own, cyd is on another plan."""
    own = {"plan": "free", "limits": {"calls": {"limit": "7/minute", "algorithm": "token-bucket"}}}
    before = checked(shop(ada="free", bob=own, cyd="pro", dan="free"))
    said = shop(ada="free", bob=own, cyd="pro", dan="free")
    said["plans"]["free"]["limits"]["calls"] = {"limit": "50/second", "algorithm": "fixed-window"}
    document = with_document(before, checked(said), now_s=NOW_S)

    assert ["ada", "dan"] == [identity for identity, each in document.customers.items() if each.former]
    assert [("calls", "fixed-window", False), ("calls", "sliding-window", True)] == holding(document, "dan")


def test_a_customer_that_was_unknown_keeps_what_it_has_used() -> None:
    """The plan of the unknown was its plan."""
    document = with_customer(checked(shop()), "ada", "bucket", now_s=NOW_S)
    refused = with_customer(checked({**shop(), "unknown": "refused"}), "ada", "bucket", now_s=NOW_S)

    assert [2.0] == until(document)
    assert [] == until(refused)


def test_a_change_that_is_taken_back_finds_its_counts() -> None:
    """The present limit counts them, so the former one of that kind is not needed; the bucket is, for a minute."""
    document = changed("free", before=changed(BUCKET))

    assert [("calls", "sliding-window", False), ("calls", "token-bucket", True)] == holding(document)
    assert [60.0] == until(document)


def test_changes_in_a_row_keep_all_that_still_counts() -> None:
    """Of one kind the one that holds for longer; those that are over are left out."""
    fixed = {"plan": "free", "limits": {"calls": {"limit": "60/minute", "algorithm": "fixed-window"}}}
    first = changed(BUCKET, now_s=NOW_S - 30)
    second = changed(fixed, before=first, now_s=NOW_S - 1)
    third = changed("free", before=second)

    assert ["sliding-window", "token-bucket"] == [each.limit.algorithm for each in first.customers["ada"].former] + [
        each.limit.algorithm for each in second.customers["ada"].former
    ]
    assert [("token-bucket", 59.0), ("fixed-window", 60.0)] == [
        (each.limit.algorithm, each.until - NOW_S) for each in third.customers["ada"].former
    ]
    assert [] == until(changed("free", before=third, now_s=NOW_S + 60.0))


def test_a_limit_without_a_successor_is_gone() -> None:
    """The change says so; the others stay as they are."""
    document = changed("free", before=checked(shop(ada="pro")))

    assert [("calls", "sliding-window", False)] == holding(document)


def test_what_is_said_by_hand_of_former_limits_is_kept_as_well() -> None:
    """A file that was written from contracts in force names them once."""
    document = changed(BUCKET)
    said = table_of_customer(document.customers["ada"])

    assert document.customers == changed(said).customers
    assert document.customers == changed(said, before=document).customers


def test_of_two_former_limits_that_count_alike_the_longer_one_holds() -> None:
    """Whichever of them was said by hand."""
    former = {"name": "calls", "limit": "50/second"}
    for said, expected in ((1.0, 2.0), (3.0, 3.0)):
        by_hand = {**BUCKET, "former": [{**former, "until": written_moment(NOW_S + said)}]}

        assert [expected] == until(changed(by_hand))


@pytest.mark.slow
def test_more_former_limits_than_can_be_kept_are_refused() -> None:
    """With what to do; nothing is forgiven."""
    document = checked(shop(ada="free"))
    said = [{"plan": "free", "limits": {"calls": {"limit": f"60/{600 + number}s"}}} for number in range(101)]
    for number, each in enumerate(said[:-1]):
        document = with_customer(document, "ada", each, now_s=NOW_S + number / 1000)

    assert 100 == len(document.customers["ada"].former)
    with pytest.raises(
        InvalidContracts, match=r"customers\.ada: this customer would have 101 limits from former contracts .* 100 are"
    ):
        with_customer(document, "ada", said[-1], now_s=NOW_S + 1)


def test_a_contract_that_does_not_exist_cannot_end() -> None:
    """One that does is gone."""
    assert {} == changed(None).customers
    with pytest.raises(InvalidContracts, match=r"^customers\.bob: has no contract to remove; check"):
        with_customer(checked(shop(ada="free")), "bob", None, now_s=NOW_S)


def test_a_change_tells_what_it_changes() -> None:
    """Of a customer its entry before and after; of a document what differs in it."""
    before, after = checked(shop(ada="free", bob="pro")), checked({**shop(ada="pro", cyd="free"), "unknown": "pro"})
    of_one, of_all = change_note(before, after, "ada"), change_note(before, after, None)

    assert ("ada", {"plan": "free"}, {"plan": "pro"}) == (of_one.identity, of_one.before, of_one.after)
    assert (None, {"plan": "pro"}) == (
        change_note(before, after, "bob").after,
        change_note(before, after, "bob").before,
    )
    assert {"unknown": "free", "customers": {"ada": {"plan": "free"}, "bob": {"plan": "pro"}}} == of_all.before
    assert {"unknown": "pro", "customers": {"ada": {"plan": "pro"}, "cyd": {"plan": "free"}}} == of_all.after
