"""Goal: a reader obeys the newest valid settings for exactly as long as they are valid, and complains of all else once.

Method: a reader that is told what was read, on a clock of the test's.
"""

from __future__ import annotations

import json
import logging
from math import inf

import pytest

from reconverge.clock import SECOND_NS, ManualClock
from reconverge.published.envelope import Secrets, Verifier
from reconverge.remote_settings.poller import RESTORED_AFTER_S, Reader
from reconverge.remote_settings.signed import MAGIC, SETTINGS, FleetSettings
from tests.support.published import HOUR_S, NOON, OTHER, SECRET, orders, sealed

INTERVAL_S = 0.1


class Listener:
    """A reader, and what it has had obeyed."""

    def __init__(self) -> None:
        self.clock = ManualClock(start=NOON)
        self.obeyed: list[int | None] = []
        self.reader = Reader(
            Verifier(SETTINGS, "shop", Secrets(SECRET)),
            self.clock,
            interval_ns=lambda: round(INTERVAL_S * SECOND_NS),
            apply=self._obey,
        )

    def _obey(self, said: FleetSettings | None) -> None:
        self.obeyed.append(None if said is None else said.version)

    def hears(self, payload: bytes | None, *, after_s: float = INTERVAL_S) -> None:
        """Reads that when it is due."""
        self.clock.advance(after_s)
        assert self.reader.due_ns() <= self.clock.monotonic_ns()
        if self.reader.begin(cut_off=False):
            self.reader.heard(payload)

    @property
    def wait_s(self) -> float:
        """How long until it looks again."""
        return (self.reader.due_ns() - self.clock.monotonic_ns()) / SECOND_NS


@pytest.fixture
def listener() -> Listener:
    """One that has heard nothing."""
    return Listener()


def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was warned of."""
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_it_looks_once_in_an_interval(listener: Listener) -> None:
    """At once in the beginning, and an interval after each look began."""
    assert 0.0 == listener.wait_s
    listener.hears(None, after_s=0.0)
    assert INTERVAL_S == listener.wait_s
    listener.hears(None, after_s=0.5)
    assert INTERVAL_S == listener.wait_s


def test_the_same_again_is_no_news(listener: Listener) -> None:
    """Obeyed once, and nothing is said to be old."""
    for _ in range(3):
        listener.hears(sealed(orders(1)))

    assert [1] == listener.obeyed
    assert {} == listener.reader.stats().rejected


def test_what_is_gone_is_still_in_force(listener: Listener) -> None:
    """A hub that has lost its data does not take back what is valid, nor does a forgery in its place."""
    listener.hears(sealed(orders(1)))
    listener.hears(None)
    listener.hears(sealed(orders(2), OTHER))
    listener.hears(sealed(orders(1)))

    assert [1] == listener.obeyed
    assert {"forged": 1} == listener.reader.stats().rejected
    assert 1 == listener.reader.stats().version


def test_what_is_lost_is_posted_again(listener: Listener) -> None:
    """Not at once, as others may; and for as long as it is valid."""
    payload = sealed(orders(1))
    listener.hears(payload)
    listener.hears(None)
    assert None is listener.reader.restoration()
    listener.hears(None, after_s=RESTORED_AFTER_S[0] - 0.001)
    assert None is listener.reader.restoration()
    listener.hears(None, after_s=RESTORED_AFTER_S[1])
    lost = listener.reader.restoration()

    assert lost is not None
    assert payload == lost.payload
    assert HOUR_S - lost.keep_s == pytest.approx(2 * INTERVAL_S + sum(RESTORED_AFTER_S), abs=0.01)
    assert None is listener.reader.restoration()
    for _ in range(2):  # it was lost again, or could not be posted
        listener.hears(None, after_s=RESTORED_AFTER_S[1])
    assert None is not listener.reader.restoration()


def test_what_somebody_else_has_posted_again_is_not(listener: Listener) -> None:
    """One is enough."""
    listener.hears(sealed(orders(1)))
    listener.hears(None)
    listener.hears(sealed(orders(1)), after_s=RESTORED_AFTER_S[1])
    listener.hears(None)

    assert None is listener.reader.restoration()


@pytest.mark.parametrize(
    ("instead", "restored"),
    [
        (sealed(orders(1)), True),  # old: who was late in posting it again
        (sealed(orders(3), OTHER), False),  # signed by whom other nodes may know
        (b"reconverge-settings-2 of another age", False),
        (sealed(orders(3, issued=NOON + 1000)), False),  # this node's clock may be behind
        (b"x" * 100_000, False),
    ],
    ids=["old", "forged", "malformed", "premature", "too-large"],
)
def test_only_what_is_nothing_or_old_is_replaced(listener: Listener, instead: bytes, restored: bool) -> None:
    """Whatever else is there may come of a publisher that this node does not understand yet."""
    listener.hears(sealed(orders(2)))
    listener.hears(instead)
    listener.hears(instead, after_s=RESTORED_AFTER_S[1])

    assert restored is (listener.reader.restoration() is not None)


def test_what_has_expired_is_not_posted_again(listener: Listener) -> None:
    """Nor is anything by who has never obeyed."""
    listener.hears(None)
    listener.hears(None, after_s=RESTORED_AFTER_S[1])
    assert None is listener.reader.restoration()
    listener.hears(sealed(orders(1)))
    listener.hears(None, after_s=HOUR_S - 1.0)
    listener.hears(None, after_s=RESTORED_AFTER_S[1])

    assert None is listener.reader.restoration()


def test_what_expires_is_taken_back_though_nothing_is_heard(
    listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    """At its last moment it is in force, and then no more; that is said once."""
    listener.hears(sealed(orders(1)), after_s=0)
    listener.reader.failed("timeout")
    listener.clock.advance(HOUR_S - 0.001)
    listener.reader.begin(cut_off=True)
    assert [1] == listener.obeyed
    listener.clock.advance(0.001)
    listener.reader.begin(cut_off=True)
    listener.reader.begin(cut_off=True)

    assert [1, None] == listener.obeyed
    assert (0, inf) == (listener.reader.stats().version, listener.reader.stats().expires_in)
    assert 1 == sum("have expired" in line for line in complaints(caplog))


def test_a_clock_that_jumps_loses_nothing(listener: Listener) -> None:
    """A day ahead and back: what is valid by the clock is in force."""
    listener.hears(sealed(orders(1)))
    listener.clock.jump(86_400)
    listener.hears(sealed(orders(1)))
    listener.clock.jump(-86_400)
    listener.hears(sealed(orders(1)))

    assert [1, None, 1] == listener.obeyed


@pytest.mark.parametrize("behind_s", [-1000, 2 * HOUR_S])
def test_what_only_the_clock_forbids_is_looked_at_again(listener: Listener, behind_s: int) -> None:
    """As soon as the clock is right it is obeyed; until then it was rejected once."""
    listener.clock.jump(behind_s)
    for _ in range(3):
        listener.hears(sealed(orders(1)))
    assert [1] == list(listener.reader.rejected.values())
    listener.clock.jump(-behind_s)
    listener.hears(sealed(orders(1)))

    assert [1] == listener.obeyed


def test_every_kind_of_rejection_is_counted_and_logged_once(
    listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    """However often it is read, or others like it are; after something was accepted it would be said again."""
    listener.hears(sealed(orders(5)))
    bad = {
        "forged": sealed(orders(6), OTHER),
        "malformed": b"noise",
        "foreign": sealed(orders(6, namespace="other")),
        "old": sealed(orders(4)),
        "expired": sealed(orders(6, issued=1)),
        "premature": sealed(orders(6, issued=NOON + 1000)),
        "too-large": b"x" * 100_000,
    }
    for payload in bad.values():
        listener.hears(payload)
        listener.hears(payload)
    listener.hears(sealed(orders(7), OTHER))

    assert [5] == listener.obeyed
    assert dict.fromkeys(bad, 1) | {"forged": 2} == listener.reader.stats().rejected
    assert 7 == len(complaints(caplog))
    assert all(any(f"they are {reason}:" in line for line in complaints(caplog)) for reason in bad)
    listener.hears(sealed(orders(8)))
    listener.hears(sealed(orders(9), OTHER))
    assert 8 == len(complaints(caplog))


def test_nothing_that_was_published_or_is_secret_is_logged(
    listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    """A forger cannot write into the log, and a secret is nowhere."""
    caplog.set_level(logging.DEBUG)
    listener.hears(b"\nERROR forged line")
    body = json.dumps({"namespace": "shop", "\nERROR another line" + 1000 * "!": 1}).encode()
    listener.hears(MAGIC + Secrets(SECRET).sign(body, magic=MAGIC) + b"\n" + body)
    listener.hears("no bytes")  # type: ignore[arg-type]  # from a hub that breaks its promises
    listener.hears(sealed(orders(1), OTHER))
    listener.hears(sealed(orders(1)))
    listener.reader.failed("timeout")

    assert {"forged": 1, "malformed": 3} == listener.reader.stats().rejected
    assert "forged line" not in caplog.text
    assert all("\n" not in line and len(line) < 500 for line in complaints(caplog))
    assert SECRET not in f"{caplog.text} {listener.reader!r} {listener.reader.stats()} {vars(listener.reader)}"


def test_who_cannot_read_tries_less_and_less_often(listener: Listener, caplog: pytest.LogCaptureFixture) -> None:
    """Down to once a second; and complains once, until it could read again."""
    gaps: list[float] = []
    for _ in range(8):
        looks = 1
        while not listener.reader.begin(cut_off=False):
            listener.clock.advance(INTERVAL_S)
            looks += 1
        listener.reader.failed("timeout")
        gaps.append(round((looks - 1) * INTERVAL_S, 1))

    assert [0.0, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0] == gaps
    assert {"timeout": 8} == listener.reader.stats().failures
    assert 1 == len(complaints(caplog))
    listener.hears(None, after_s=1.0)
    listener.hears(sealed(orders(1)))
    listener.reader.failed("timeout")
    assert [1] == listener.obeyed
    assert 2 == len(complaints(caplog))


def test_while_exchanges_fail_nothing_is_read(listener: Listener) -> None:
    """They say why, and another question would only keep them waiting."""
    assert not listener.reader.begin(cut_off=True)
    assert INTERVAL_S == listener.wait_s
