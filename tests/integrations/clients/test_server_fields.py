"""Servers' statements are understood in every form, each for its own quota, operation and moment; nonsense is not."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from httpx import Headers

from reconverge.integrations.clients.server_fields import Heard, Numbers, heard
from reconverge.integrations.servers import ANY_SERVER
from reconverge.limiter.pauses import LONGEST_S

NOON = 1_800_000_000.0
IN_HALF_A_MINUTE = datetime.fromtimestamp(NOON + 30, UTC)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ()),
        ({"RateLimit": '"burst";r=57;t=22'}, (Numbers(57, "burst", reset=22),)),
        (
            {"RateLimit": '"burst";r=57;t=22, "daily";r=3;t=900', "RateLimit-Policy": '"daily";q=9;w=86400'},
            (Numbers(57, "burst", reset=22), Numbers(3, "daily", 9, 86_400, 900)),
        ),
        ({"RateLimit": "limit=100, remaining=57, reset=22"}, (Numbers(57, reset=22),)),
        (
            {"RateLimit-Remaining": "3", "RateLimit-Reset": "9", "RateLimit-Limit": "10, 10;w=60"},
            (Numbers(3, "", 10, reset=9),),
        ),
        (
            {"X-RateLimit-Remaining": "29", "X-RateLimit-Limit": "30", "X-RateLimit-Resource": "search"},
            (Numbers(29, "search", 30),),
        ),
        (
            {"x-ratelimit-remaining-tokens": "7", "x-ratelimit-reset-tokens": "6m0s"},
            (Numbers(7, "tokens", reset=360),),
        ),
    ],
)
def test_numbers_are_kept_with_all_that_names_their_quota(
    fields: dict[str, str], expected: tuple[Numbers, ...]
) -> None:
    """In every dialect: the name, the quota and the window, as far as the response has them."""
    assert Heard(numbers=expected) == heard(200, Headers(fields), now=NOON)


@pytest.mark.parametrize("status", [200, 201, 202, 206, 301, 303, 304, 400, 404, 413, 500])
def test_only_a_refusal_pauses(status: int) -> None:
    """Retry-After beside any other status is about the operation, or sent with every response."""
    assert heard(status, {"Retry-After": "120"}, now=NOON).pause is None


@pytest.mark.parametrize(
    ("status", "fields", "pause"),
    [
        (429, {"Retry-After": "120"}, 120),
        (503, {"Retry-After": "120"}, 120),
        (403, {"Retry-After": "120"}, 120),
        (503, {}, None),
        (403, {}, None),
        (403, {"X-RateLimit-Remaining": "12"}, None),
        (403, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(NOON) + 2400)}, 2400),
        (429, {"RateLimit": '"burst";r=0;t=22, "daily";r=0;t=900, "other";r=5;t=9000'}, 900),
        (429, {"Retry-After": "5", "RateLimit": '"a";r=0;t=60'}, 5),
        (429, {}, ANY_SERVER.pause_s),
        (429, {"Retry-After": "0"}, 0),
    ],
)
def test_a_refusal_pauses_until_the_time_that_it_names(
    status: int, fields: dict[str, str], pause: float | None
) -> None:
    """Retry-After, else the renewal of what is used up; a status with other meanings needs one of them."""
    assert pause == heard(status, fields, now=NOON).pause


@pytest.mark.parametrize(
    ("fields", "pause"),
    [
        ({"Retry-After": "20.493"}, 20.493),
        ({"Retry-After": "30s"}, 30),
        ({"Retry-After": "1h2m3.5s"}, 3723.5),
        ({"Retry-After": "30, 20"}, 30),
        ({"Retry-After": format_datetime(IN_HALF_A_MINUTE, usegmt=True)}, 30),
        ({"Retry-After": IN_HALF_A_MINUTE.isoformat()}, 30),
        ({"Retry-After": IN_HALF_A_MINUTE.strftime("%Y-%m-%dT%H:%M:%SZ")}, 30),
        ({"Retry-After": str(int(NOON) + 30)}, 30),
        ({"Retry-After": str(int(NOON + 30) * 1000)}, 30),
        ({"Retry-After": str(int(NOON + 30) * 10**9)}, 30),
        ({"Retry-After": "30", "Age": "10"}, 20),
        ({"Retry-After": "1", "retry-after-ms": "20500"}, 20.5),
        ({"x-ms-retry-after-ms": "250"}, 0.25),
        ({"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(NOON + 30) * 1000)}, 30),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "12ms"}, 0.012),
    ],
)
def test_a_time_is_understood_in_every_form(fields: dict[str, str], pause: float) -> None:
    """Durations and moments, with a fraction or a unit, in seconds or less."""
    assert pause == pytest.approx(heard(429, fields, now=NOON).pause or -1)


@pytest.mark.parametrize("ahead_s", [-600, 600])
@pytest.mark.parametrize(
    "field", [lambda at: format_datetime(at, usegmt=True), lambda at: str(int(at.timestamp()))], ids=["date", "epoch"]
)
def test_a_moment_is_compared_with_the_servers_own_clock(ahead_s: int, field: Callable[[datetime], str]) -> None:
    """Times of day mean the time since the Date of the same response, however wrong either clock is."""
    there = datetime.fromtimestamp(NOON, UTC) + timedelta(seconds=ahead_s)
    fields = {"Date": format_datetime(there, usegmt=True), "Retry-After": field(there + timedelta(seconds=30))}

    assert 30.0 == heard(503, fields, now=NOON).pause


@pytest.mark.parametrize(
    "fields",
    [
        {"RateLimit": '"burst";r='},
        {"RateLimit": '"burst";r=-5'},
        {"RateLimit": '"burst";r=1.5'},
        {"RateLimit": '("a" "b")'},
        {"RateLimit": "\N{SNOWMAN}"},
        {"RateLimit": '"a";r=1, ' * 4096},
        {"X-RateLimit-Remaining": "NaN"},
        {"X-RateLimit-Remaining": "infinity"},
        {"X-RateLimit-Remaining": "-1", "X-RateLimit-Limit": "-1"},
        {"Retry-After": "-1"},
        {"Retry-After": "-5"},
        {"Retry-After": "soon"},
        {"Retry-After": "5 apples"},
        {"Retry-After": "1e3"},
        {"Retry-After": "1_000"},
        {"Retry-After": "9" * 400},
        {"Retry-After": "Mon, 01 Jan 99999999999 00:00:00 GMT"},
        {"Retry-After": "Mon, 01 Jan 2024 00:00:00 +99999999999999"},
        {"Retry-After": "9999-99-99T00:00:00Z"},
        {"Retry-After": "\N{ARABIC-INDIC DIGIT THREE}"},
    ],
)
def test_nonsense_counts_as_missing(fields: dict[str, str]) -> None:
    """A malformed field changes nothing; a refusal without a time pauses briefly, and not for the largest time."""
    assert Heard() == heard(200, fields, now=NOON)
    assert Heard(pause=ANY_SERVER.pause_s) == heard(429, fields, now=NOON)


def test_numbers_out_of_a_cache_are_no_news() -> None:
    """They were true when the response was stored."""
    assert Heard() == heard(200, {"RateLimit": '"api";r=0;t=30', "Age": "10"}, now=NOON)


@pytest.mark.parametrize("text", ["86401", "9999999999", "Fri, 31 Dec 9999 23:59:59 GMT", "9999-12-31T23:59:59Z"])
def test_no_pause_is_longer_than_a_day(text: str) -> None:
    """A pause has a bound, however far the named time is."""
    assert LONGEST_S == heard(429, {"Retry-After": text}, now=NOON).pause
