"""Goal: `reconverge bridge` says what it is given wrongly before it begins, and tells no secrets."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from reconverge import ReconvergeError
from reconverge.cli.app import app

LOCAL, WIDE = "redis://:s3cret@127.0.0.1:1/0", "redis://:s3cret@127.0.0.1:2/0"
SANE = {"--region": "eu", "--local": LOCAL, "--wide": WIDE, "--movable": "0.5"}
WRONG = {
    "everything movable": ({"--movable": "1"}, "must be above 0 and below 1"),
    "nothing movable": ({"--movable": "0"}, "must be above 0 and below 1"),
    "movable in percent": ({"--movable": "60"}, "must be above 0 and below 1"),
    "one hub for both": ({"--wide": LOCAL}, "is the region's own hub; name the one that all regions share"),
    "a hub in memory": ({"--local": "memory://here"}, "is no hub that processes share"),
    "a hub that cannot lend": (
        {"--local": "mqtt://127.0.0.1:1"},
        "is a hub that cannot lend parts of limits; name a Redis",
    ),
    "a loan shorter than a few rounds": ({"--loan": "5"}, "must be a number of seconds from 7"),
    "no pace": ({"--interval": "0"}, "must be a number of seconds"),
    "a name that is none": ({"--region": "e u"}, "e u"),
    "a namespace that is too long": ({"--namespace": "n" * 60}, "must be a string of 1 to 64 characters"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_is_said_before_it_begins(wrong: str) -> None:
    """In a sentence with what was given, and without its password."""
    change, problem = WRONG[wrong]
    words = [word for option in (SANE | change).items() for word in option]
    result = CliRunner().invoke(app, ["bridge", *words])

    assert isinstance(result.exception, ReconvergeError)
    assert problem in str(result.exception)
    assert "s3cret" not in str(result.exception)
