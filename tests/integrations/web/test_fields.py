"""Goal: whatever was decided, the fields of a response say it in a form that others can read.

Method: fields are made of decisions and parsed by somebody else's parser of structured fields.
"""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
from http_sfv.item import Item
from http_sfv.list import List
from hypothesis import given
from hypothesis import strategies as st

from reconverge import Agent, Decision, InvalidSetting, Limit
from reconverge.integrations.web.fields import (
    DRAFT_06,
    IETF_11,
    X_RATELIMIT,
    QuotaDecision,
    checked_dialects,
    fields_of,
    retry_after_of,
    sf_string,
)
from reconverge.testing import ManualClock

MINUTE = Limit(10, 60)


def decision(name: str = "login", *, allowed: bool = True, remaining: int = 3, after: float = 7.2) -> Decision:
    return Decision(allowed, 10, remaining, 0.0 if allowed else after, after, 0.0, name)


def told(*decisions: Decision) -> list[QuotaDecision]:
    """Decisions about limits of ten per minute."""
    return [QuotaDecision(each, {each.binding: MINUTE}) for each in decisions]


def parsed(text: str) -> list[tuple[str, dict[str, Any]]]:
    """The items of a List of Strings, with their parameters."""
    found = List()
    found.parse(text.encode("ascii"))
    return [(item.value, dict(item.params)) for item in found]


def test_the_default_dialect_says_quota_window_remaining_and_time() -> None:
    """Both fields are Lists of Strings with the parameters of the draft."""
    fields = dict(fields_of(told(decision()), [IETF_11], wall_s=0.0))

    assert [("login", {"q": 10, "w": 60})] == parsed(fields["RateLimit-Policy"])
    assert [("login", {"r": 3, "t": 8})] == parsed(fields["RateLimit"])


def test_the_binding_policy_comes_first() -> None:
    """Of those that admitted, the one with the least left."""
    fields = dict(fields_of(told(decision("wide", remaining=9), decision("tight", remaining=1)), [IETF_11], wall_s=0.0))

    assert ["tight", "wide"] == [name for name, _ in parsed(fields["RateLimit-Policy"])]
    assert ["tight", "wide"] == [name for name, _ in parsed(fields["RateLimit"])]


def test_the_longest_wait_comes_first_when_several_refuse() -> None:
    """And Retry-After is that of the longest, so that whoever waits so long is not refused by another."""
    both = told(decision("soon", allowed=False, after=2.0), decision("late", allowed=False, after=50.1))

    assert ["late", "soon"] == [name for name, _ in parsed(dict(fields_of(both, [IETF_11], wall_s=0.0))["RateLimit"])]
    assert 51 == retry_after_of(*[each.decision for each in both])


def test_what_would_have_been_admitted_has_no_time_in_a_refusal() -> None:
    """Retry-After is never earlier than any `t`, though the other limit is as good as new only in an hour."""
    both = told(decision("daily", after=3600.0), decision("burst", allowed=False, after=1.5))

    assert [("burst", {"r": 3, "t": 2}), ("daily", {"r": 3})] == parsed(
        dict(fields_of(both, [IETF_11], wall_s=0.0))["RateLimit"]
    )


def test_all_quotas_of_a_limit_are_policies() -> None:
    """The field of policies has every quota, that of services the one that binds."""
    limiter = Agent("memory://", clock=ManualClock()).limit("api", "10/second; 1000/hour as hourly")
    fields = dict(fields_of([QuotaDecision(limiter.hit("ada"), limiter.quotas)], [IETF_11], wall_s=0.0))

    assert [("api", {"q": 10, "w": 1}), ("api#hourly", {"q": 1000, "w": 3600})] == parsed(fields["RateLimit-Policy"])
    assert ["api"] == [name for name, _ in parsed(fields["RateLimit"])]


@pytest.mark.parametrize(
    ("limit", "quota", "window"),
    [
        (Limit(10, 0.25), 10, 1),
        (Limit(10, 1.5), 10, 2),
        (Limit(10, 1, algorithm="token-bucket", burst=100), 100, 10),
        (Limit(10, 60, soft=0.5), 10, 60),
    ],
)
def test_a_window_is_told_in_whole_seconds_and_never_too_short(limit: Limit, quota: int, window: int) -> None:
    """Who keeps to what is told is not refused; a bucket is told by what it holds, and how long it takes to drain."""
    fields = dict(fields_of([QuotaDecision(decision(), {"login": limit})], [IETF_11], wall_s=0.0))

    assert [("login", {"q": quota, "w": window})] == parsed(fields["RateLimit-Policy"])


def test_the_earlier_draft_has_a_field_for_each_number() -> None:
    """Of the binding limit; all are policies."""
    fields = dict(fields_of(told(decision("a", remaining=5), decision("b", remaining=2)), [DRAFT_06], wall_s=0.0))

    assert {
        "RateLimit-Limit": "10",
        "RateLimit-Remaining": "2",
        "RateLimit-Reset": "8",
        "RateLimit-Policy": "10;w=60, 10;w=60",
    } == fields


def test_the_older_fields_have_the_moment_of_the_reset() -> None:
    """In whole seconds since 1970, and not before it is true."""
    fields = dict(fields_of(told(decision()), [X_RATELIMIT], wall_s=1000.5))

    assert {"X-RateLimit-Limit": "10", "X-RateLimit-Remaining": "3", "X-RateLimit-Reset": "1009"} == fields


def test_two_dialects_can_be_spoken_at_once() -> None:
    """But not two that write one field differently."""
    assert (IETF_11, X_RATELIMIT) == checked_dialects("ietf-11, x-ratelimit")
    with pytest.raises(InvalidSetting, match="both have a field RateLimit-Policy"):
        checked_dialects([IETF_11, DRAFT_06])
    with pytest.raises(InvalidSetting, match="is not one of"):
        checked_dialects("ietf-99")


@pytest.mark.parametrize("after", [-inf, -1e300, -0.0])
@pytest.mark.parametrize("dialect", [IETF_11, DRAFT_06])
def test_a_time_that_lies_behind_is_now(after: float, dialect: str) -> None:
    """A decision that an application makes up may say so: the client is told the least that the field can say."""
    refused, allowed = decision(allowed=False, after=after), decision(after=after)
    least = {name: fields_of(told(what), [dialect], wall_s=0.0) for name, what in (("no", refused), ("yes", allowed))}
    now = {"no": decision(allowed=False, after=1.0), "yes": decision(after=0.0)}

    assert {name: fields_of(told(what), [dialect], wall_s=0.0) for name, what in now.items()} == least
    assert 1 == retry_after_of(refused)


@pytest.mark.parametrize("after", [inf, 1e300])
def test_what_is_too_far_away_is_not_told(after: float) -> None:
    """A cost that never fits has no time after which it would."""
    refused = told(decision(allowed=False, after=after))

    assert [("login", {"r": 3})] == parsed(dict(fields_of(refused, [IETF_11], wall_s=0.0))["RateLimit"])
    assert None is retry_after_of(refused[0].decision)


def test_a_refusal_is_never_to_be_retried_at_once() -> None:
    """Part of a second is a second."""
    assert 1 == retry_after_of(decision(allowed=False, after=0.001))


@given(st.text())
def test_any_text_is_a_string_without_a_line_break(text: str) -> None:
    """It parses as one String, with any content, and cannot end the field."""
    string = sf_string(text)
    item = Item()
    item.parse(string.encode("ascii"))

    assert isinstance(item.value, str)
    assert string.isprintable()


@given(
    st.text(min_size=1),
    st.integers(-(2**62), 2**62),
    st.floats(allow_nan=False),
    st.booleans(),
)
def test_any_decision_can_be_parsed(name: str, remaining: int, after: float, allowed: bool) -> None:
    """Numbers stay in the range of structured fields, and none is negative."""
    fields = dict(
        fields_of(told(decision(name, allowed=allowed, remaining=remaining, after=after)), [IETF_11], wall_s=0.0)
    )
    ((_, parameters),) = parsed(fields["RateLimit"])

    assert 0 <= parameters["r"] < 10**15
    assert 0 <= parameters.get("t", 0) < 10**15
    assert [] == [value for value in fields.values() if not value.isprintable() or not value.isascii()]
