"""Goal: a node obeys the newest valid document of its fleet, keeps it when that is lost, and complains once of others.

Method: each claim holds for settings and for contracts: a reader on a clock of the test's, at a hub in memory that any
client may write to.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable

import pytest

from reconverge.clock import SECOND_NS
from reconverge.errors import HubUnavailable
from reconverge.published.envelope import Secrets
from reconverge.published.reader import RESTORED_AFTER_S
from tests.support.kept_contracts import INTERVAL_S
from tests.support.published import HOUR_S, NOON, OTHER, SECRET
from tests.support.published_readers import ContractsNode, ReadingNode, SettingsNode

KINDS: list[type[ReadingNode]] = [SettingsNode, ContractsNode]


@pytest.fixture(params=KINDS, ids=["settings", "contracts"])
def node(request: pytest.FixtureRequest) -> ReadingNode:
    """A node that has read nothing."""
    kind: Callable[[], ReadingNode] = request.param
    return kind()


def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The warnings and errors that were logged."""
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


# When it looks.


def test_it_looks_once_in_an_interval(node: ReadingNode) -> None:
    """At once in the beginning, and an interval after each look began."""
    assert 0.0 == node.wait_s
    node.look(0.0)
    assert INTERVAL_S == node.wait_s
    node.look(0.5)
    assert INTERVAL_S == node.wait_s
    assert 2 == node.hub.reads


def test_while_exchanges_fail_nothing_is_read(node: ReadingNode) -> None:
    """They say why, and another question would only keep them waiting."""
    node.put(node.document())
    node.look(cut_off=True)
    assert (0, INTERVAL_S, []) == (node.hub.reads, node.wait_s, node.applied)
    node.look()

    assert [1] == node.applied


@pytest.mark.parametrize(
    ("problem", "kind"),
    [
        (HubUnavailable("permission", "no"), "permission"),
        (TimeoutError(), "timeout"),
        (ValueError("what a hub must not raise"), "bug:ValueError"),
    ],
    ids=repr,
)
def test_a_node_that_cannot_read_tries_less_and_less_often(
    node: ReadingNode, caplog: pytest.LogCaptureFixture, problem: Exception, kind: str
) -> None:
    """Down to once a second; it complains once, until it could read again, and what is in force stays so."""
    node.reads(node.document())
    node.hub.read_problem = problem
    gaps: list[float] = []
    for _ in range(7):
        node.look(node.wait_s)
        gaps.append(round(node.wait_s, 3))
    assert [0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0] == gaps
    assert (1, {kind: 7}) == (node.stats.version, node.stats.failures)
    assert 1 == len(complaints(caplog))
    node.hub.read_problem = None
    node.look(node.wait_s)
    node.hub.read_problem = problem
    node.look(node.wait_s)

    assert ([1], INTERVAL_S) == (node.applied, node.wait_s)
    assert 2 == len(complaints(caplog))


def test_a_hub_that_keeps_no_such_documents_is_complained_of_once(
    node: ReadingNode, caplog: pytest.LogCaptureFixture
) -> None:
    """It logs an error: settings that are published for the fleet do not reach this node."""

    class Simple:
        shards = 1

    for _ in range(3):
        node.look(hub=Simple())

    (record,) = caplog.records
    what = node.reader.what
    problem = f"reconverge: Simple stores no {what}; use another hub if {what} are published"
    assert (logging.ERROR, problem) == (record.levelno, record.getMessage())


# What it believes.


def test_the_same_again_is_no_news(node: ReadingNode) -> None:
    """Obeyed once, and not rejected as old."""
    for _ in range(3):
        node.reads(node.document())

    assert ([1], 1, {}) == (node.applied, node.stats.accepted, node.stats.rejected)


def test_what_is_gone_is_still_in_force(node: ReadingNode) -> None:
    """A hub that has lost its data does not take back what is valid, nor does a forgery in its place."""
    for payload in (node.document(), None, node.document(2, OTHER), node.document()):
        node.reads(payload)

    assert ([1], {"forged": 1}, 1) == (node.applied, node.stats.rejected, node.stats.version)


@pytest.mark.parametrize("behind_s", [-1000, 2 * HOUR_S])
def test_a_document_that_only_the_clock_forbids_is_judged_again(node: ReadingNode, behind_s: int) -> None:
    """It is obeyed when the clock is right; until then it was rejected once."""
    node.clock.jump(behind_s)
    for _ in range(3):
        node.reads(node.document())
    assert [1] == list(node.stats.rejected.values())
    node.clock.jump(-behind_s)
    node.look()

    assert [1] == node.applied


def test_a_document_that_is_rejected_for_another_reason_is_counted_under_both(
    node: ReadingNode, caplog: pytest.LogCaptureFixture
) -> None:
    """Premature at first, and expired before the clock was right."""
    node.put(node.document(issued=NOON + 1000, lifetime=100))
    for jump_s in (0, 2000, 0):
        node.clock.jump(jump_s)
        node.look()

    assert {"premature": 1, "expired": 1} == node.stats.rejected
    assert 2 == len(complaints(caplog))


def test_every_kind_of_rejection_is_counted_and_logged_once(
    node: ReadingNode, caplog: pytest.LogCaptureFixture
) -> None:
    """However often it is read, or others like it are; after something was accepted it would be logged again."""
    node.reads(node.document(5))
    bad = {
        "forged": node.document(6, OTHER),
        "malformed": b"noise",
        "foreign": node.document(6, namespace="other"),
        "old": node.document(4),
        "expired": node.document(6, issued=1),
        "premature": node.document(6, issued=NOON + 1000),
        "too-large": b"x" * 100_000,
    }
    for payload in bad.values():
        node.reads(payload)
        node.reads(payload)
    node.reads(node.document(7, OTHER))

    assert [5] == node.applied
    assert dict.fromkeys(bad, 1) | {"forged": 2} == node.stats.rejected
    assert 7 == len(complaints(caplog))
    assert all(any(f"rejected as {reason}:" in line for line in complaints(caplog)) for reason in bad)
    node.reads(node.document(8))
    node.reads(node.document(9, OTHER))
    assert 8 == len(complaints(caplog))


def test_a_document_of_the_other_kind_is_malformed() -> None:
    """Though the same secret has signed it."""
    settings_node, contracts_node = SettingsNode(), ContractsNode()
    settings_node.reads(contracts_node.document())
    contracts_node.reads(settings_node.document())

    assert [{"malformed": 1}] * 2 == [settings_node.stats.rejected, contracts_node.stats.rejected]


def test_nothing_that_was_published_or_is_secret_is_logged(node: ReadingNode, caplog: pytest.LogCaptureFixture) -> None:
    """A forger cannot write into the log, and a secret is nowhere."""
    caplog.set_level(logging.DEBUG)
    body = json.dumps({"namespace": "shop", "\nERROR another line" + 1000 * "!": 1}).encode()
    for payload in (
        b"\nERROR forged line",
        node.magic + Secrets(SECRET).sign(body, magic=node.magic) + b"\n" + body,
        node.document(1, OTHER),
        node.document(),
    ):
        node.reads(payload)
    node.hub.read_problem = HubUnavailable("gone", "away")
    node.look()

    assert {"forged": 1, "malformed": 2} == node.stats.rejected
    assert "forged line" not in caplog.text
    assert all("\n" not in line and len(line) < 500 for line in complaints(caplog))
    assert SECRET not in f"{caplog.text} {node.reader!r} {node.stats} {vars(node.reader)}"


def test_a_document_that_a_node_fails_to_apply_is_not_in_force(node: ReadingNode) -> None:
    """The one before stays, which is said once; the next one is obeyed."""
    node.reads(node.document(1))
    node.unfit = 2
    node.reads(node.document(2))
    node.look()
    assert (1, {"unfit": 1}, {}) == (node.stats.version, node.stats.rejected, node.stats.failures)
    assert 1 == node.applied[-1]
    node.reads(node.document(3))

    assert (3, 3) == (node.stats.version, node.applied[-1])


# What it posts again.


def test_a_document_that_is_lost_is_posted_again(node: ReadingNode) -> None:
    """Not at once, as others may; and again if it was lost again."""
    payload = node.document()
    node.reads(payload)
    for restored in (1, 2):
        node.reads(None)
        node.look(RESTORED_AFTER_S[0] - 0.001)
        assert None is node.at_hub()
        node.look(RESTORED_AFTER_S[1])
        assert payload == node.at_hub()
        assert restored == node.stats.restored


@pytest.mark.parametrize(
    ("instead", "restored"),
    [
        (lambda node: node.document(1), True),
        (lambda node: node.document(3, OTHER), False),
        (lambda node: b"reconverge-settings-2 of another age", False),
        (lambda node: node.document(3, issued=NOON + 1000), False),
        (lambda node: b"x" * 100_000, False),
    ],
    ids=["old", "forged", "malformed", "premature", "too-large"],
)
def test_only_nothing_or_an_older_document_is_replaced(
    node: ReadingNode, instead: Callable[[ReadingNode], bytes], restored: bool
) -> None:
    """Any other may come of a publisher that this node does not understand yet."""
    newest, found = node.document(2), instead(node)
    node.reads(newest)
    node.reads(found)
    node.look(RESTORED_AFTER_S[1])

    assert (newest if restored else found) == node.at_hub()


@pytest.mark.parametrize("slow_s", [0.0, 10.0], ids=["before", "while it is looked for"])
def test_a_document_that_has_expired_is_not_posted_again(node: ReadingNode, slow_s: float) -> None:
    """Nor does a node post anything that knows none."""
    node.reads(None)
    node.look(RESTORED_AFTER_S[1])
    assert None is node.at_hub()
    node.reads(node.document(lifetime=60))
    node.reads(None, 40.0 - node.clock.wall_ns() / SECOND_NS + NOON)
    node.hub.slow_s = slow_s
    node.look(20.5 - slow_s)

    assert None is node.at_hub()
    assert 0 == node.stats.restored


def test_a_document_that_cannot_be_posted_again_is_tried_again(
    node: ReadingNode, caplog: pytest.LogCaptureFixture
) -> None:
    """The failure is counted and logged, and reading goes on in its rhythm."""
    payload = node.document()
    node.reads(payload)
    node.reads(None)
    node.hub.post_problem = HubUnavailable("permission", "no")
    for _ in range(2):
        node.look(RESTORED_AFTER_S[1])
        assert INTERVAL_S == node.wait_s
        node.look()
    assert {"permission": 2} == node.stats.failures
    assert 1 == len(complaints(caplog))
    node.hub.post_problem = None
    node.look(RESTORED_AFTER_S[1])

    assert (payload, 1) == (node.at_hub(), node.stats.restored)
