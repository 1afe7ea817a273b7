"""Goal: every request has a key that is its own, can be stored, and cannot be mistaken for another's."""

from __future__ import annotations

import sys
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from ipaddress import ip_address
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reconverge import InvalidKey, InvalidSetting
from reconverge.integrations import (
    Guard,
    PlainRequest,
    Rule,
    by_header,
    by_ip,
    by_ip_network,
    by_method,
    by_path_parameter,
    by_route,
    by_user,
    everybody,
    together,
)
from reconverge.integrations.web.request.keys import asks, joined, plain, waits, written
from reconverge.limiter.long_keys import HASHED, fitting

KEY_BYTES_MAX = 256


class NamelessUser:
    """A user of Starlette: its identity raises, and it has a name."""

    is_authenticated = True
    username = "ada"

    @property
    def identity(self) -> str:
        """Nobody has said what it is."""
        raise NotImplementedError


@pytest.mark.parametrize(
    ("function", "request_", "expected"),
    [
        (by_ip, PlainRequest(client="2001:db8::1"), "2001:db8::/64"),
        (by_ip, PlainRequest(client=None), None),
        (by_ip_network(48), PlainRequest(client="2001:db8::1"), "2001:db8::/48"),
        (by_header("X-Key"), PlainRequest(headers={"x-key": "k"}), "k"),
        (by_header("X-Key"), PlainRequest(), None),
        (by_user, PlainRequest(user=None), None),
        (by_user, PlainRequest(user="ada"), "ada"),
        (by_user, PlainRequest(user=SimpleNamespace(pk=7, id=8)), 7),
        (by_user, PlainRequest(user=SimpleNamespace(is_authenticated=False, id=8)), None),
        (by_user, PlainRequest(user=NamelessUser()), "ada"),
        (by_route, PlainRequest(route="/items/{id}"), "/items/{id}"),
        (by_route, PlainRequest(path="/nobody/knows"), "-"),
        (by_method, PlainRequest(method="POST"), "POST"),
        (by_method, PlainRequest(method="MADE-UP"), "-"),
        (by_path_parameter("tenant"), PlainRequest(path_parameters={"tenant": 3}), 3),
        (by_path_parameter("tenant"), PlainRequest(), None),
        (everybody, PlainRequest(), "everybody"),
        (together(by_method, by_ip), PlainRequest(client="192.0.2.1"), ("GET", "192.0.2.1")),
    ],
)
def test_a_key_function_finds_what_its_name_says(function: Any, request_: PlainRequest, expected: object) -> None:
    """None where it is missing."""
    assert expected == function(request_)


def test_a_user_without_anything_to_tell_him_by_is_a_mistake() -> None:
    """It says what was looked for."""
    with pytest.raises(InvalidKey, match="none of pk, id, identity, username"):
        by_user(PlainRequest(user=object()))


def test_together_is_a_coroutine_function_if_a_part_is() -> None:
    """And only then, so that it can be used without an event loop otherwise."""

    async def slow(_request: object) -> str:
        return "ada"

    assert not waits(together(by_ip, by_route))
    assert waits(together(by_ip, slow))


def test_a_function_of_nothing_is_asked_without_the_request() -> None:
    """Flask's users write them so; a function with more parameters is refused at once."""
    assert "ada" == asks(lambda: "ada")(PlainRequest())
    assert "GET" == asks(lambda request: request.method)(PlainRequest())
    with pytest.raises(InvalidSetting, match="requires more arguments than the request"):
        asks(lambda one, two: one)
    with pytest.raises(InvalidSetting, match="is not a function"):
        asks("ada")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("ada", "ada"),
        ("", None),
        (None, None),
        (7, "7"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (("a", 7), "a|7"),
        (("a", None), None),
        (("a", ""), None),
        ((), None),
        (("a", []), None),
    ],
)
def test_numbers_and_tuples_are_keys_too(value: object, expected: str | None) -> None:
    """A part that is missing makes the whole missing."""
    assert expected == written(value)


class Masked(str):
    """A text that shows nothing of itself, such as a token."""

    __slots__ = ()

    def __str__(self) -> str:
        return "***"


class Tier(str, Enum):  # noqa: UP042  # whose text is "Tier.FREE"
    """A member is a text, too."""

    FREE = "free"


def test_a_text_of_another_class_counts_as_what_it_says_and_not_as_what_it_shows() -> None:
    """Else all would be one, or another one than the same text."""
    assert "ada" == written(Masked("ada"))
    assert "free" == written(Tier.FREE)
    assert {str} == {type(written(each)) for each in (Masked("ada"), Tier.FREE)}


class Plan(Enum):
    """Members with values of several kinds."""

    FREE = "free"
    PAID = 7


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1.5, Decimal("1.5"), Decimal("1.50"), Decimal("15e-1")], "1.5"),
        ([0.0, -0.0], "0.0"),
        ([Decimal("0.00"), Decimal("-0"), Decimal("0e9")], "0"),
        ([float("nan")], "nan"),
        ([float("inf")], "inf"),
        ([Decimal("NaN")], "NaN"),
        ([date(2026, 2, 3)], "2026-02-03"),
        ([time(4, 5)], "04:05:00"),
        ([timedelta(hours=1), timedelta(minutes=60)], "1:00:00"),
        ([datetime(2026, 2, 3, 4, 5)], "2026-02-03T04:05:00"),  # noqa: DTZ001  # as a path may have it
        (
            [datetime(2026, 2, 3, 4, tzinfo=UTC), datetime(2026, 2, 3, 6, tzinfo=timezone(timedelta(hours=2)))],
            "2026-02-03T04:00:00+00:00",
        ),
        ([Plan.FREE], "free"),
        ([Plan.PAID], "7"),
        ([PurePosixPath("a/b"), PurePosixPath("a//b/.")], "a/b"),
        ([ip_address("2001:db8::1"), ip_address("2001:DB8:0::1")], "2001:db8::1"),
        ([Fraction(1, 2), Fraction(2, 4)], "1/2"),
        ([(date(2026, 2, 3), 1.5)], "2026-02-03|1.5"),
    ],
)
def test_what_a_path_can_have_is_a_key_in_one_spelling(values: list[object], expected: str) -> None:
    """Frameworks make numbers, dates and more of values in paths; the same thing is the same key."""
    assert [expected] * len(values) == [written(value) for value in values]


@pytest.mark.parametrize("value", [1.5, date(2026, 2, 3), Decimal(2), Plan.FREE, object()])
def test_a_value_in_the_path_limits_whatever_it_is(guard: Guard, value: object) -> None:
    """One that is no key is as good as none: the request is counted by its address."""
    rule = guard.declare(Rule(limits="1/hour", key_func=by_path_parameter("value")))
    request = PlainRequest(client="192.0.2.1", path_parameters={"value": value})

    assert [True, False, False] == [bool(guard.check(request, [rule])) for _ in range(3)]


@pytest.mark.parametrize("value", [True, b"ada", object(), {"a": 1}])
def test_what_has_no_stable_text_is_no_key(value: object) -> None:
    """An object whose text has its place in memory would be a key of its own in each request."""
    with pytest.raises(InvalidKey):
        written(value)


PARTS = st.lists(st.text(alphabet="a|%7C25", min_size=1, max_size=3), min_size=1, max_size=3)


@given(PARTS, PARTS)
@example(["a|a"], ["a", "a"])
@example(["a%7Ca"], ["a|a"])
def test_different_parts_make_different_keys(one: list[str], other: list[str]) -> None:
    """The parts may have any content."""
    assert (one == other) == (joined(one) == joined(other))


@given(st.text(alphabet=st.characters(), min_size=1))
def test_any_text_can_be_stored(text: str) -> None:
    """Surrogates, NUL and all; the same text is always the same key, and it stays within its length."""
    key = fitting(plain(text), KEY_BYTES_MAX)

    assert key == fitting(plain(text), KEY_BYTES_MAX)
    assert 1 <= len(key.encode()) <= KEY_BYTES_MAX
    assert not key.startswith("\x00")


@pytest.mark.parametrize("text", ["a" * 10_000_000, "\x00a", "\ud800", "ä" * 200, "a" * 257])
def test_a_key_that_cannot_be_stored_is_hashed(text: str) -> None:
    """To the same short key on all nodes; megabytes are not kept."""
    key = fitting(plain(text), KEY_BYTES_MAX)

    assert key.startswith(HASHED)
    assert sys.getsizeof(key) < 200
    assert key != fitting(plain(text + "b"), KEY_BYTES_MAX)


def test_what_just_fits_is_kept() -> None:
    """In bytes, not in characters."""
    assert "a" * 256 == fitting("a" * 256, KEY_BYTES_MAX)
    assert "ä" * 128 == fitting("ä" * 128, KEY_BYTES_MAX)


def test_nobody_can_send_the_hash_of_anothers_key() -> None:
    """A key that looks like one of ours is hashed once more."""
    victim = fitting(plain("a" * 1000), KEY_BYTES_MAX)

    assert victim != fitting(plain(victim), KEY_BYTES_MAX)
    assert "~nobody" != plain("~nobody")


@pytest.mark.parametrize("prefix", [0, 129, True, "64"])
def test_a_prefix_that_ipv6_does_not_have_is_refused_at_once(prefix: Any) -> None:
    """From one bit to all of them."""
    with pytest.raises(InvalidSetting, match="between 1 and 128"):
        by_ip_network(prefix)
