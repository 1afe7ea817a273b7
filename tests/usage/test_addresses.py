"""Goal: the number of addresses of an identity is known within the stated error. Method: known numbers, many books."""

from __future__ import annotations

from statistics import mean, pstdev

import pytest

from reconverge.usage.addresses import ERROR, TEXT_MAX, AddressBook

BOOKS = 40


def estimates(count: int) -> list[int]:
    """Returns the estimates of so many books, each with a secret of its own, for so many addresses that come twice."""
    found = []
    for _ in range(BOOKS):
        book = AddressBook()
        for number in range(2 * count):
            book.note("acme", f"2001:db8::{number % count:x}")
        found.append(book.estimate("acme"))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 20, 100, 1000, 5000])
def test_the_estimate_is_within_its_error(count: int) -> None:
    """On average it is right to a fifth of the error and one, and it is spread no wider than one and a half of it.

    Each is five standard deviations of what 40 books may differ in.
    """
    found = estimates(count)

    assert abs(mean(found) - count) <= count * ERROR * 0.8 + 1
    assert pstdev(found) <= count * ERROR * 1.6 + 1


def test_addresses_that_come_again_count_once() -> None:
    """However often."""
    book = AddressBook()
    for _ in range(1000):
        book.note("acme", "192.0.2.1")

    assert 1 == book.estimate("acme")
    assert 0 == book.estimate("zeta")


def test_an_identity_that_is_erased_begins_anew() -> None:
    """Nothing of it is told any more, and an address that it came from before counts again."""
    book = AddressBook()
    for identity in ("acme", "zeta"):
        book.note(identity, "192.0.2.1")
    book.erase(lambda identity: identity == "acme")

    assert {"zeta"} == set(book.take_risen())
    assert 0 == book.estimate("acme")
    book.note("acme", "192.0.2.1")
    assert 1 == book.estimate("acme")


def test_of_an_identity_that_is_too_long_nothing_is_kept() -> None:
    """A client can write one of 64 KB as its key, and others without end; no customer is called so."""
    book = AddressBook()
    for length in (TEXT_MAX, TEXT_MAX + 1):
        book.note("x" * length, "192.0.2.1")

    assert {"x" * TEXT_MAX} == set(book.take_risen())
    assert 1 == book.unwatched
    assert 0 == book.estimate("x" * (TEXT_MAX + 1))


def test_the_identities_that_are_watched_are_bounded() -> None:
    """Those beyond are counted, and not watched; with the next hour there is room again."""
    book = AddressBook(identities_max=2)
    for number in range(5):
        book.note(f"customer {number}", "192.0.2.1")
    assert 3 == book.unwatched
    assert [1, 1, 0, 0, 0] == [book.estimate(f"customer {number}") for number in range(5)]
    book.forget()

    book.note("customer 4", "192.0.2.1")
    assert (1, 0) == (book.estimate("customer 4"), book.unwatched)
