"""Goal: a process that was restored from an image of its memory, or whose machine slept, does not go on as before.

Method: two processes with one memory; clocks that jump as those of a restored machine do; and a library that moves the
machine's clock on, as a suspension does, under a real program.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from reconverge import Agent
from reconverge.clock import SECOND_NS
from reconverge.hub.report import Totals
from reconverge.runtime.restoration import JUMP_NS, LOOK_NS, Restorations
from reconverge_sync.memory import MemoryHub
from tests.support.agents import NEVER_FULL, net_at
from tests.support.fixtures.agents import MakeAgent
from tests.support.programs.process import Process
from tests.support.servers import RedisServer
from tests.support.waiting import eventually


class Machine:
    """A machine, as far as a process can see it."""

    def __init__(self) -> None:
        self.wall_ns = self.since_start_ns = 0
        self.boot_id = "one"
        self.restorations = Restorations(
            wall_ns=lambda: self.wall_ns, since_start_ns=lambda: self.since_start_ns, boot_id=lambda: self.boot_id
        )

    def pass_time(self, wall_ns: int, since_start_ns: int) -> None:
        """Let both clocks go on."""
        self.wall_ns += wall_ns
        self.since_start_ns += since_start_ns


def _net(hub: MemoryHub) -> int:
    return asyncio.run(hub.totals()).get("login", Totals(0, 0)).net


def _all_said(hub: MemoryHub, agent: Agent) -> bool:
    return agent.stats().limits["login"].admitted == _net(hub)


def test_a_wall_clock_that_goes_ahead_at_once_is_a_sign() -> None:
    """By more than the edge, and once; time that passes, a drift and a clock that is set back are none."""
    machine = Machine()

    machine.pass_time(3600 * SECOND_NS, 3600 * SECOND_NS)
    assert "" == machine.restorations.sign()
    machine.pass_time(JUMP_NS, 0)
    assert "" == machine.restorations.sign()
    machine.pass_time(JUMP_NS + 1, 0)
    assert "the wall clock went forward by 5 s at once" == machine.restorations.sign()
    assert "" == machine.restorations.sign()
    machine.pass_time(-3600 * SECOND_NS, 0)
    assert "" == machine.restorations.sign()


def test_another_boot_id_is_a_sign() -> None:
    """It is looked at once a second at most."""
    machine = Machine()
    machine.boot_id = "two"

    machine.pass_time(LOOK_NS - 1, LOOK_NS - 1)
    assert "" == machine.restorations.sign()
    machine.pass_time(1, 1)
    assert "the boot id of the machine has changed" == machine.restorations.sign()
    machine.pass_time(LOOK_NS, LOOK_NS)
    assert "" == machine.restorations.sign()


@pytest.mark.parametrize("shards", [1, 2])
def test_a_restored_node_goes_on_under_a_new_name(
    shards: int, make_agent: MakeAgent, caplog: pytest.LogCaptureFixture
) -> None:
    """And a new account, at every shard; what it admits is told once. That is counted, and the first time logged."""
    hub, machine = MemoryHub(shards=shards), Machine()
    agent = make_agent(hub)
    agent._lifecycle.exchanges.watch_for_restorations = machine.restorations
    login = agent.limit("login", NEVER_FULL)
    login.allow("ada")
    eventually(lambda: agent.ready and _all_said(hub, agent), "the first exchange")
    before = _accounts(agent)

    with caplog.at_level(logging.WARNING, logger="reconverge"):
        for _ in range(2):
            _is_restored(machine, agent)
            login.allow("eve")
            eventually(lambda: agent.ready and _all_said(hub, agent), "all that was admitted")

    assert (2, set()) == (agent.stats().restorations, before & _accounts(agent))
    assert [2] * shards == [exchanges.lapses for exchanges in agent.stats().exchanges]
    assert 1 == sum("Its node goes on under a new name" in record.message for record in caplog.records)


def _is_restored(machine: Machine, agent: Agent) -> None:
    accounts = _accounts(agent)
    machine.pass_time(3600 * SECOND_NS, 0)
    eventually(lambda: not accounts & _accounts(agent), "new names")


def _accounts(agent: Agent) -> set[str]:
    return {exchanges.node.partition(".")[0] for exchanges in agent.stats().exchanges}


def test_two_copies_of_one_memory_end_up_with_two_names_and_all_is_counted(own_redis: RedisServer) -> None:
    """Both use one allowance, which is all that they admit too much; each sees a clock that has gone forward."""
    with Process("is_copied", own_redis.url) as process:
        before, shared_name = process.says().split()
        copy, original = process.says().split(), process.says().split()
        status, lines = process.ends()

    assert (0, []) == (status, lines), process.stderr
    assert int(copy[0]) == int(original[0]) > 0, "the same allowance"
    assert ("1", "1") == (copy[3], original[3])
    assert 3 == len({name.partition(".")[0] for name in (shared_name, copy[2], original[2])})
    assert net_at(own_redis.url) == int(before) + sum(int(told) for told in (*copy[:2], *original[:2]))


SHIM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
static volatile long *slept;
int clock_gettime(clockid_t clock, struct timespec *now)
{
    static int (*real)(clockid_t, struct timespec *);
    if (!real) {
        real = dlsym(RTLD_NEXT, "clock_gettime");
        int file = open(getenv("SLEPT"), O_RDWR);
        slept = mmap(NULL, sizeof *slept, PROT_READ, MAP_SHARED, file, 0);
    }
    int status = real(clock, now);
    if (clock == CLOCK_BOOTTIME || clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) now->tv_sec += *slept;
    if (clock == CLOCK_MONOTONIC_COARSE) *now = (struct timespec){1, 0};
    return status;
}
"""
"""After a suspension these clocks are ahead by its length, and the other ones go on where they were.

No tick comes on the coarse one of those: a decision may be faster than the first tick after the machine has resumed.
"""


@pytest.fixture
def shim(tmp_path: Path) -> Path:
    """A library that sets the machine's clocks forward by as many seconds as a file beside it says."""
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("no compiler to build a clock with")
    (tmp_path / "shim.c").write_text(SHIM)
    files = [str(tmp_path / "shim.so"), str(tmp_path / "shim.c")]
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", *files, "-ldl"], check=True)
    (tmp_path / "slept").write_bytes(bytes(8))
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["native", "pure"])
def test_a_machine_that_slept_beyond_its_lease_uses_no_allowance(
    kernel: str, shim: Path, own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease goes on while the machine sleeps, as it does at the hub, which may have dealt the allowance to others.

    From the first decision on, whether an exchange has begun since or not: the hub does not answer.
    """
    monkeypatch.setenv("LD_PRELOAD", str(shim / "shim.so"))
    monkeypatch.setenv("SLEPT", str(shim / "slept"))
    monkeypatch.setenv("RECONVERGE_NO_EXTENSIONS", "1" if kernel == "pure" else "")

    with Process("has_a_line_and_sleeps", own_redis.url) as process:
        assert "30" == process.says()
        own_redis.pause()
        _write(shim / "slept", 3600)
        process.go_on()
        status, lines = process.ends()
    own_redis.resume()

    assert (0, ["0"]) == (status, lines), process.stderr


def _write(path: Path, number: int) -> None:
    """In place: the file is mapped."""
    file = os.open(path, os.O_WRONLY)
    os.write(file, number.to_bytes(8, "little"))
    os.close(file)
