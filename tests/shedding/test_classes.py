"""How a request gets its class, and that no client can make itself important."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconverge.errors import InvalidSetting
from reconverge.shedding import TrafficClasses

METHODS = ["GET", "HEAD", "OPTIONS", "TRACE", "POST", "PUT", "PATCH", "DELETE"]


@pytest.mark.parametrize(("method", "name"), [("GET", "GET"), ("HEAD", "GET"), ("POST", "POST"), ("DELETE", "POST")])
def test_a_method_tells_reading_from_writing(method: str, name: str) -> None:
    """Safe methods are of the class GET, all others of the class POST."""
    classes = TrafficClasses()

    assert classes.rank(name) == classes.rank_of(None, method, None)


@given(
    method=st.sampled_from(METHODS), field=st.none() | st.sampled_from(["critical", "POST", "GET", "test"]) | st.text()
)
def test_no_client_makes_itself_more_important(method: str, field: str | None) -> None:
    """A request is at most as important as its method makes it, with any header field."""
    classes = TrafficClasses()

    assert classes.rank_of(None, method, field) >= classes.rank_of(None, method, None)


def test_a_client_may_make_itself_less_important() -> None:
    """A GET that calls itself test traffic is test traffic."""
    classes = TrafficClasses()

    assert classes.rank("test") == classes.rank_of(None, "GET", "test")


def test_a_trusted_field_decides() -> None:
    """Behind a proxy that sets it, the field may say that a GET is critical."""
    assert 0 == TrafficClasses(trust_header=True).rank_of(None, "GET", "critical")


def test_a_function_decides_before_method_and_field() -> None:
    """Its result is the class; None leaves it to the method; an unknown name is an error."""
    classes = TrafficClasses(classify=lambda request: request)

    assert 0 == classes.rank_of("critical", "GET", "test")
    assert classes.rank("GET") == classes.rank_of(None, "GET", None)
    with pytest.raises(InvalidSetting, match="did you mean 'critical'"):
        classes.rank_of("critcal", "GET", None)


@pytest.mark.parametrize(
    ("names", "settings", "told"),
    [
        ([], {}, "1 to 16"),
        ([str(number) for number in range(17)], {}, "1 to 16"),
        (["POST", "GET", "GET"], {}, "twice"),
        (["POST", "GET", 3], {}, "word"),
        ("critical", {}, "list of names"),
        (["high", "low"], {}, "classify"),
        (["POST", "GET"], {"classify": 7}, "function"),
        (["POST", "GET"], {"header": " "}, "header"),
    ],
)
def test_classes_that_make_no_sense_are_told(names: Any, settings: dict[str, Any], told: str) -> None:
    """None, too many, one twice, one that is no text, and classes that nothing tells apart are errors that say so."""
    with pytest.raises(InvalidSetting, match=told):
        TrafficClasses(names, **settings)
