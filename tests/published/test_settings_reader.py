"""Goal: published settings are in force for exactly as long as they are valid, by a clock that may jump.

Method: a reader on a clock of the test's. What it has in common with the reader of contracts is tested in
`tests/published/test_reader.py`.
"""

from __future__ import annotations

import logging
from math import inf

import pytest

from reconverge.errors import HubUnavailable
from tests.support.published import HOUR_S
from tests.support.published_readers import SettingsNode


@pytest.fixture
def node() -> SettingsNode:
    """A node that has read nothing."""
    return SettingsNode()


def test_settings_that_expire_are_taken_back_though_nothing_is_read(
    node: SettingsNode, caplog: pytest.LogCaptureFixture
) -> None:
    """At their last moment they are in force, and then no more, which is logged once."""
    node.reads(node.document(), 0.0)
    node.hub.read_problem = HubUnavailable("gone", "away")
    node.look(HOUR_S - 0.001, cut_off=True)
    assert [1] == node.applied
    node.look(0.101, cut_off=True)
    node.look()

    assert [1, None] == node.applied
    assert (0, inf) == (node.stats.version, node.stats.expires_in)
    assert 1 == sum("have expired" in record.getMessage() for record in caplog.records)


def test_a_clock_that_jumps_loses_nothing(node: SettingsNode) -> None:
    """A day ahead and back: what is valid by the clock is in force."""
    node.reads(node.document())
    node.clock.jump(86_400)
    node.look()
    node.clock.jump(-86_400)
    node.look()

    assert [1, None, 1] == node.applied


def test_no_version_is_believed_again_that_was_replaced_before_it_expired(node: SettingsNode) -> None:
    """Though nothing is in force any more."""
    old = node.document(1, lifetime=2 * HOUR_S)
    node.reads(old)
    node.reads(node.document(2))
    node.reads(old, HOUR_S)

    assert ([1, 2, None], {"old": 1}) == (node.applied, node.stats.rejected)


def test_settings_that_cannot_be_taken_back_do_not_keep_others_from_being_read(
    node: SettingsNode, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is tried again each time, counted, and logged once."""

    def fail(version: int | None) -> None:
        if version is None:
            raise ZeroDivisionError
        node.applied.append(version)

    node.reads(node.document(1))
    monkeypatch.setattr(node, "_apply", fail)
    node.look(HOUR_S)
    node.look()
    assert {"bug:ZeroDivisionError": 2} == node.stats.failures
    assert 1 == sum(record.levelno >= logging.WARNING for record in caplog.records)
    node.reads(node.document(2, lifetime=2 * HOUR_S))

    assert [1, 2] == node.applied
