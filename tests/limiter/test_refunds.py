"""Goal: a refund that cannot reach its charge is logged, once, and a refund in good order never is.

Method: refunds to keys that were charged and to others, and refunds of more than a quota.
"""

from __future__ import annotations

import pytest

from reconverge import Agent, RateLimiter

ASTRAY = "has given nothing back to a key that this process does not count; refund with the key that allow()"


def _login() -> RateLimiter:
    limiter = Agent("memory://").limit("login", "10/minute")
    assert limiter.allow("ada", 5)
    return limiter


def test_a_refund_to_a_key_that_was_not_counted_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """It is written in another way than the key that was charged."""
    login = _login()
    for _ in range(2):
        login.refund("Ada", 5)

    assert 1 == caplog.text.count(ASTRAY)


def test_a_refund_after_one_that_met_its_key_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The program writes its keys in one way; the later key may have expired, and been forgotten."""
    login = _login()
    login.refund("ada", 5)
    login.refund("bob", 5)

    assert "" == caplog.text


def test_a_refund_by_a_process_that_has_counted_nothing_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """It has just been started again, or the limit is off."""
    Agent("memory://").limit("login", "10/minute").refund("ada", 5)

    assert "" == caplog.text


@pytest.mark.parametrize("quotas", ["10/minute", "10/minute; 100/hour"])
def test_a_refund_of_more_than_a_request_can_cost_is_logged_once(quotas: str, caplog: pytest.LogCaptureFixture) -> None:
    """It is no error, as the quota may have been lowered since the charge; the use does not fall below zero."""
    login = Agent("memory://").limit("login", quotas)
    assert login.allow("ada", 10)
    login.refund("ada", 10)
    assert "" == caplog.text
    for _ in range(2):
        login.refund("ada", 50)

    assert 1 == caplog.text.count("was to give 50 back at once, and admits at most 10 at once")
    assert 0 == login.usage("ada").total
