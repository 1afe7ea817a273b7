"""Goal: several quotas of one limit are shared by a fleet as single ones are, each of them.

Method: two agents on one Redis, each with a thread and a connection of its own; windows so long that they do not end
within the test. A fork, where it matters what a lock is worth in the child.
"""

from __future__ import annotations

import os

from reconverge import Agent
from tests.support.agents import admitted_of


def test_a_forked_child_decides_about_several_quotas_although_the_lock_was_taken() -> None:
    """Whoever held it is not there any more; all quotas share a lock again."""
    agent = Agent("memory://")
    login = agent.limit("login", "10/year; 5/year")
    with login.control.table.lock:
        pid = os.fork()
        if pid == 0:
            tables = login.control.tables
            shared = tables[0].lock is tables[1].lock
            os._exit(admitted_of(login, 20) if shared else 99)
    _, status = os.waitpid(pid, 0)

    assert 5 == os.waitstatus_to_exitcode(status)
