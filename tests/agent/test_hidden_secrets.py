"""Goal: a password that stands where it does not belong is in no error message, which logs and trackers keep.

Method: settings with a password in a URL, in a table or in a text of their own, each where it is a mistake.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import flask
import pytest

from reconverge import Agent, InvalidSetting
from reconverge.integrations.fastapi import Limits as FastapiLimits
from reconverge.integrations.flask import Limits as FlaskLimits

AGENT: Final[Any] = Agent
FASTAPI: Final[Any] = FastapiLimits
FLASK: Final[Any] = FlaskLimits
URL: Final = "redis://ada:hunt@er2/x@host:6379/0"
LONG: Final = f"redis://{'a' * 90}:hunter2@host:6379/0"


def configured(name: str, value: object) -> None:
    """Makes an application with a wrong setting in its configuration."""
    app = flask.Flask("shop")
    app.config[name] = value
    FLASK(app=app)


WRONG: Final[dict[str, tuple[Callable[[], object], str]]] = {
    "URL under another name": (lambda: FASTAPI(storage=URL), "storage='redis://***@host:6379/0'"),
    "long URL": (lambda: FASTAPI(redis=LONG), "redis='redis://***@host:6379/0'"),
    "several URLs": (lambda: AGENT(hub=[URL, URL]), "hub=['redis://***@host:6379/0', 'redis://***@host:6379/0']"),
    "URL in bytes": (lambda: configured("RATELIMIT_STORAGE_URI", URL.encode()), "=b'redis://***@host:6379/0'"),
    "URL of old": (lambda: configured("RATELIMIT_STORAGE_URL", URL), "='redis://***@host:6379/0'"),
    "table": (lambda: AGENT({"host": "db", "password": "hunt'er2"}), "hub={'host': 'db', 'password': ***}"),
    "options": (
        lambda: FASTAPI(storage_options={"sentinel_password": "hunter2", "db": 1}),
        "storage_options={'sentinel_password': ***, 'db': 1}",
    ),
    "table in a table": (lambda: AGENT({"redis": {"token": b"hunter2"}}), "hub={'redis': {'token': ***}}"),
    "query": (lambda: FASTAPI(url="redis://host?password=hunter2&db=1"), "url='redis://host?password=***&db=1'"),
    "secret of an agent": (lambda: FASTAPI(key_secret=URL), "key_secret='***'"),
}


def test_what_is_no_password_is_shown() -> None:
    """A kind of request may be called tokens; and an empty secret is the mistake."""
    assert "cost='tokens=bytes': is wrong" == str(InvalidSetting("cost", "tokens=bytes", "is wrong"))
    assert "costs={'tokens': '5'}: is wrong" == str(InvalidSetting("costs", {"tokens": "5"}, "is wrong"))
    assert "key_secret='': is empty" == str(InvalidSetting("key_secret", "", "is empty"))


@pytest.mark.parametrize("what", WRONG)
def test_an_error_about_a_setting_shows_no_password(what: str) -> None:
    """It shows the rest of the value, so that the mistake is found."""
    make, shown = WRONG[what]

    with pytest.raises(InvalidSetting) as caught:
        make()

    assert shown in str(caught.value)
    assert "er2" not in str(caught.value)
