"""Goal: a limit string is read as whoever wrote it meant it, or refused with the place where it stopped making sense.

Method: a table of what is accepted, a table of what is not, and any text at all.
"""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reconverge import InvalidLimit, Limit
from reconverge.limit.grammar import TEXT_LENGTH_MAX, UNITS_S, Quota, parse_quotas
from tests.support.kernel.odd import HUGE, named

MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86_400

ISO = "is no ISO 8601 duration of weeks, days, hours, minutes and seconds, such as PT10S or P14D"

NUMBERS = st.sampled_from(["100", "5", "0", "1" * 19, "\u0664"])
UNITS = st.sampled_from(["second", "s", "ms", "Minutes", "mo", "PT10S", "P1M"])
OTHERS = st.sampled_from(["/", "per", "PER", "per10", "10s", "burst", "burst5", "as", "api", ",", ";", "|"])
NOISE = st.sampled_from([" ", "\t", "\n", "-", ".", "\u2003", "\ud800", "é", "\x00"])
WORDS = NUMBERS | UNITS | OTHERS | NOISE
TEXTS = st.text() | st.lists(WORDS, max_size=12).map("".join) | st.lists(WORDS, max_size=12).map(" ".join)


EXAMPLE = "; write for example 100/minute, or 100 in flight for what runs at once"


@pytest.mark.parametrize(
    ("text", "amount", "window_s"),
    [
        ("100/minute", 100, MINUTE_S),
        ("100 per minute", 100, MINUTE_S),
        ("100per minute", 100, MINUTE_S),
        ("100 / minute", 100, MINUTE_S),
        (" 100/minute\n", 100, MINUTE_S),
        ("100 PER MiNuTe", 100, MINUTE_S),
        ("5 per 10 seconds", 5, 10),
        ("5/10 seconds", 5, 10),
        ("5 per10 seconds", 5, 10),
        ("5per10seconds", 5, 10),
        ("5perminute", 5, MINUTE_S),
        ("2000/10s", 2000, 10),
        ("2000/10 s", 2000, 10),
        ("007/01s", 7, 1),
        ("1/500ms", 1, 0.5),
        ("10 per 2 hours", 10, 2 * HOUR_S),
        ("1000/day", 1000, DAY_S),
        ("3/2w", 3, 14 * DAY_S),
        ("1/month", 1, 30 * DAY_S),
        ("1/year", 1, 360 * DAY_S),
        ("1/m", 1, MINUTE_S),
        ("1/mo", 1, 30 * DAY_S),
        ("1000/day,", 1000, DAY_S),
        ("20/PT10M", 20, 10 * MINUTE_S),
        ("20 / pt10m", 20, 10 * MINUTE_S),
        ("1000 per P31D", 1000, 31 * DAY_S),
        ("1000/31 days", 1000, 31 * DAY_S),
        ("1000 perP1DT12H", 1000, 36 * HOUR_S),
        ("5/P2W", 5, 14 * DAY_S),
        ("5/PT0.25S", 5, 0.25),
    ],
)
def test_what_is_accepted(text: str, amount: int, window_s: float) -> None:
    """Every way to write a quota, with and without the spaces."""
    (quota,) = parse_quotas(text)

    assert (amount, window_s, None, None) == (quota.amount, quota.window_s, quota.burst, quota.name)


@pytest.mark.parametrize("unit", [unit for unit in UNITS_S if unit != "m"])
@pytest.mark.parametrize("write", [str.lower, str.upper, str.title])
def test_every_unit_but_one_is_read_in_any_case(unit: str, write: type[str]) -> None:
    """Small, large, or with a capital letter; `M` is an error, as it may be a minute or a month."""
    assert UNITS_S[unit] == parse_quotas(f"1/{write(unit)}")[0].window_s


@pytest.mark.parametrize(
    ("text", "burst", "name"),
    [
        ("10/s burst 20", 20, None),
        ("10/s BURST 20", 20, None),
        ("10/s as api", None, "api"),
        ("10/s burst 20 as api", 20, "api"),
        ("10/PT1S burst 20 as P1D", 20, "P1D"),
        ("1000/day as daily", None, "daily"),
        ("10/s as per-user_v1.2", None, "per-user_v1.2"),
        ("10/s as per10", None, "per10"),
        ("10/s as burst", None, "burst"),
        ("10/s as as", None, "as"),
    ],
)
def test_a_burst_and_a_name_may_follow(text: str, burst: int | None, name: str | None) -> None:
    """In this order; a name may look like any other word."""
    (quota,) = parse_quotas(text)

    assert (burst, name) == (quota.burst, quota.name)


def test_a_warmup_may_be_an_iso_duration() -> None:
    """A number with a unit does as well."""
    assert [5, 5] == [parse_quotas(f"10/s warmup {each}")[0].warmup_s for each in ("PT5S", "5s")]


@pytest.mark.parametrize("mark", [",", ";", "|", " , ", " ;", "| "])
def test_several_quotas_are_read_one_by_one(mark: str) -> None:
    """Joined by any of the three marks; each knows where it began."""
    text = f"10/s burst 20{mark}1000/day as daily"

    quotas = parse_quotas(text)

    assert (
        Quota(10, 1, 20, None, position=0),
        Quota(1000, DAY_S, None, "daily", position=text.index("1000")),
    ) == quotas


def test_several_quotas_are_not_one_limit() -> None:
    """They are understood, and refused with what to do instead, at the second one."""
    with pytest.raises(InvalidLimit, match=r"Limit\.parse_all") as caught:
        Limit.parse("10/s; 1000/day")

    assert 6 == caught.value.position


@pytest.mark.parametrize(
    ("text", "position", "problem"),
    [
        ("", 0, "expected a number of requests, like 100 in 100/minute, but the text ends"),
        ("   ", 3, "expected a number of requests, like 100 in 100/minute, but the text ends"),
        ("minute", 0, "expected a number of requests, like 100 in 100/minute, but found 'minute'"),
        ("100", 3, f"expected '/', 'per' or 'in flight', but the text ends{EXAMPLE}"),
        ("100 minute", 4, f"expected '/', 'per' or 'in flight', but found 'minute'{EXAMPLE}"),
        ("100//minute", 4, "expected a unit, like second, minute, hour or day, but found '/'"),
        ("100/", 4, "expected a unit, like second, minute, hour or day, but the text ends"),
        ("100/10", 6, "expected a unit, like second, minute, hour or day, but the text ends"),
        ("100/fortnight", 4, "unknown unit 'fortnight'; use ms, s, m, h, d, w, mo, y or their names"),
        ("100/PT0S", 4, "a window cannot be of length 0"),
        ("100/2 PT1S", 6, "unknown unit 'PT1S'; use ms, s, m, h, d, w, mo, y or their names"),
        ("100/fixed", 4, "unknown unit 'fixed'; use ms, s, m, h, d, w, mo, y or their names"),
        ("1000/M", 5, "the unit 'M' may be a minute or a month; write m or minute, or mo or month"),
        ("100/P1M", 4, f"'P1M' {ISO}; a month is P30D or P31D"),
        ("100/PT", 4, "'PT' is an ISO 8601 duration without a number; write one like PT10S"),
        ("100/p", 4, "'p' is an ISO 8601 duration without a number; write one like PT10S"),
        ("100/PT10Mx", 4, f"'PT10Mx' {ISO}; a month is P30D or P31D"),
        ("100/0 s", 4, "a window cannot be of length 0"),
        ("-1/minute", 0, "unexpected '-'; a quota is 0 or more, as in 100/minute"),
        ("1.5/minute", 0, "'1.5' is no whole number; write 3/2 minute, which is the same rate"),
        ("1_000/minute", 0, "'1_000' is not written in digits alone; write 1000"),
        ("1/\u0664s", 2, "unexpected '\u0664'; write digits and words with / , ; or | between them, as in 100/minute"),
        ("1e3/minute", 1, "expected '/', 'per' or 'in flight', but found 'e3'; write the number in digits, as 1000"),
        ("100/minute burst", 16, "expected the size of the burst, but the text ends"),
        ("100/minute burst s", 17, "expected the size of the burst, but found 's'"),
        ("100/minute as", 13, "expected a name, but the text ends"),
        ("100/minute as 5", 14, "expected a name, but found '5'"),
        (
            "100/minute as api burst 5",
            18,
            "expected 'burst', 'warmup', 'as', a separator (, ; |) or the end, but found 'burst'",
        ),
        ("100/minute 5", 11, "expected 'burst', 'warmup', 'as', a separator (, ; |) or the end, but found '5'"),
        ("1/s,,2/s", 4, "expected a number of requests, like 100 in 100/minute, but found ','"),
        ("1/s,;", 4, "expected a number of requests, like 100 in 100/minute, but found ';'"),
        (",1/s", 0, "expected a number of requests, like 100 in 100/minute, but found ','"),
        ("1" * 19 + "/s", 0, "a number of 19 digits is too large; 18 is the most"),
    ],
)
def test_what_is_refused_and_where(text: str, position: int, problem: str) -> None:
    """The error names the text, the place and what was expected there."""
    with pytest.raises(InvalidLimit) as caught:
        parse_quotas(text)

    assert (text, position, problem) == (caught.value.text, caught.value.position, caught.value.problem)


def test_the_message_points_at_the_place() -> None:
    """The text stands under the message, with a mark below the character that is wrong; people count from one."""
    with pytest.raises(InvalidLimit) as caught:
        parse_quotas("100/fortnight")

    first, text, pointer = str(caught.value).splitlines()
    assert first.startswith("limit '100/fortnight', at character 5: unknown unit 'fortnight'")
    assert text.index("fortnight") == pointer.index("^")


@pytest.mark.parametrize("value", [None, 100, b"100/minute", ["100/minute"], HUGE], ids=named)
def test_what_is_no_text_is_refused(value: str) -> None:
    """With the type that it is."""
    with pytest.raises(InvalidLimit, match=f"not {type(value).__name__}"):
        parse_quotas(value)


def test_a_very_long_text_is_refused_before_it_is_read() -> None:
    """And is not repeated whole in the message."""
    with pytest.raises(InvalidLimit, match=f"more than {TEXT_LENGTH_MAX}") as caught:
        parse_quotas("1/s," * 1000)

    assert len(str(caught.value)) < 200


def test_a_text_of_the_greatest_length_is_read() -> None:
    """One character less than too many."""
    text = "1/s," * (TEXT_LENGTH_MAX // 4)

    assert (TEXT_LENGTH_MAX, TEXT_LENGTH_MAX // 4) == (len(text), len(parse_quotas(text)))


@pytest.mark.slow
@given(text=TEXTS)
@example("100/")
@example("1/s as\u2003")
@example("\ud800")
def test_any_text_is_read_or_refused_at_a_place_inside_it(text: str) -> None:
    """No text makes anything else happen."""
    position: int | None = None
    try:
        Limit.parse(text)
    except InvalidLimit as error:
        position = error.position

    assert position is None or 0 <= position <= len(text)


@given(text=TEXTS)
def test_what_is_read_starts_where_it_says(text: str) -> None:
    """The position of each quota is that of its number."""
    try:
        quotas = parse_quotas(text)
    except InvalidLimit:
        return

    assert all(
        int(text[quota.position :].partition("/")[0].lower().partition("per")[0]) == quota.amount for quota in quotas
    )
