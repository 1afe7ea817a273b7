"""Goal: servers' limits are understood in every dialect, and nonsense is not."""

from __future__ import annotations

import pytest

from reconverge.integrations.clients.server_fields import HELD_MAX, Heard, heard

NOON = 1_800_000_000.0


@pytest.mark.parametrize(
    ("status", "fields", "expected"),
    [
        (200, {}, Heard()),
        (200, {"RateLimit": '"burst";r=57;t=22'}, Heard(remaining=57)),
        (200, {"RateLimit": '"burst";r=57;t=22, "daily";r=3;t=900'}, Heard(remaining=3)),
        (429, {"RateLimit": '"burst";r=0;t=22, "daily";r=0;t=900'}, Heard(hold=900.0, remaining=0)),
        (200, {"RateLimit": "limit=100, remaining=57, reset=22"}, Heard(remaining=57)),
        (429, {"RateLimit-Remaining": "0", "RateLimit-Reset": "9"}, Heard(hold=9.0, remaining=0)),
        (200, {"RateLimit-Remaining": "0", "RateLimit-Reset": "9"}, Heard(remaining=0)),
        (429, {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(NOON) + 7)}, Heard(hold=7.0, remaining=0)),
        (503, {"Retry-After": "120"}, Heard(hold=120.0)),
        (200, {"Retry-After": "120"}, Heard(hold=120.0)),
        (429, {"Retry-After": "5", "RateLimit": '"a";r=0;t=60'}, Heard(hold=5.0, remaining=0)),
    ],
)
def test_every_dialect_is_understood(status: int, fields: dict[str, str], expected: Heard) -> None:
    """Of several policies the tightest counts; without Retry-After a refusal holds until the quota is renewed."""
    assert expected == heard(status, fields, now=NOON)


def test_a_date_is_compared_with_the_servers_own_clock() -> None:
    """Retry-After as a date means the time since the Date of the same response, however wrong our clock is."""
    fields = {"Date": "Sun, 06 Nov 1994 08:49:37 GMT", "Retry-After": "Sun, 06 Nov 1994 08:50:07 GMT"}

    assert Heard(hold=30.0) == heard(503, fields, now=NOON)


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
        {"Retry-After": "-1"},
        {"Retry-After": "soon"},
        {"Retry-After": "Mon, 01 Jan 99999999999 00:00:00 GMT"},
        {"Retry-After": "Mon, 01 Jan 2024 00:00:00 +99999999999999"},
        {"Retry-After": "\N{ARABIC-INDIC DIGIT THREE}"},
    ],
)
def test_nonsense_counts_as_not_said(fields: dict[str, str]) -> None:
    """A malformed field changes nothing."""
    assert Heard() == heard(200, fields, now=NOON)


@pytest.mark.parametrize("text", ["9" * 400, "86401", "Fri, 31 Dec 9999 23:59:59 GMT"])
def test_nobody_is_left_alone_for_longer_than_a_day(text: str) -> None:
    """A hold has a bound, whatever the server says."""
    assert Heard(hold=HELD_MAX) == heard(429, {"Retry-After": text}, now=NOON)
