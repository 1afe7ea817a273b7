"""Goal: however a process ends, `kill -9` excepted, the hub hears everything that it admitted, and nobody is bothered.

Method: real processes that end in every way there is, at a pace at which only last words can have said all; a real
Redis that is asked afterwards. Warnings about what was left open would stand in what they complained of.
"""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys

import pytest

from tests.support.agents import net_at
from tests.support.programs.process import Process
from tests.support.servers import RedisServer, free_port
from tests.support.waiting import eventually

ADMITTED = 10
TOLD_BEFORE = 1
"""The cost that the hub knows of those without the last words."""
SIGTERM_STATUS = 128 + signal.SIGTERM


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "status"),
    [
        ("comes_to_its_end", 0),
        ("exits", 3),
        ("drops_its_agent", 0),
        ("leaves_its_loop_closed", 0),
        ("leaves_its_loop_closed_where_no_thread_can_be_had", 0),
        ("decides_at_the_very_end", 0),
    ],
)
def test_the_end_of_a_program_loses_nothing(program: str, status: int, redis_server: RedisServer) -> None:
    """Nor is the process kept alive, and nothing is printed that the program did not print."""
    with Process(program, redis_server.url) as process:
        ended = process.ends()

    assert (status, [str(ADMITTED)]) == ended
    assert "" == process.stderr
    assert ADMITTED == net_at(redis_server.url)


def test_an_exception_that_ends_a_program_loses_nothing(redis_server: RedisServer) -> None:
    """It is printed as ever, and that is all."""
    with Process("fails", redis_server.url) as process:
        ended = process.ends()

    assert (1, [str(ADMITTED)]) == ended
    assert process.stderr.rstrip().endswith("LookupError: on purpose")
    assert 1 == process.stderr.count("Traceback")
    assert ADMITTED == net_at(redis_server.url)


@pytest.mark.parametrize(
    ("program", "begins", "status", "ends", "known"),
    [
        ("rests", [], SIGTERM_STATUS, [], ADMITTED),
        ("decides_on_another_thread", [], SIGTERM_STATUS, [], ADMITTED),
        ("never_lets_go", [], SIGTERM_STATUS, [], ADMITTED),
        ("serves", [], SIGTERM_STATUS, [], ADMITTED),
        # The loop does not come to its callbacks; the call is left as by `sys.exit`, with all its `finally`.
        ("keeps_its_loop", ["blocks"], SIGTERM_STATUS, ["unwound"], ADMITTED),
        # It comes to the end that it was coming to, and its last words are not interrupted.
        ("ends_by_itself_and_says_when_it_leaves", ["leaving"], 0, [], ADMITTED),
        # The handler of an application does what it did before, and the end that it leads to loses nothing either.
        ("rests_with_a_handler_of_its_own", [], 0, ["mine"], ADMITTED),
        # With `sigterm=False` the system ends the process at once, and what the hub had not heard is lost.
        ("rests_without_a_handler", [], -signal.SIGTERM, [], TOLD_BEFORE),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_sigterm_loses_nothing(
    program: str, begins: list[str], status: int, ends: list[str], known: int, redis_server: RedisServer
) -> None:
    """Unless it is left to the system; the status names the signal if that has ended the program."""
    with Process(program, redis_server.url) as process:
        assert [str(ADMITTED), *begins] == [process.says() for _ in range(1 + len(begins))]

        process.send(signal.SIGTERM)

        assert (status, ends) == process.ends()
    assert "" == process.stderr or program == "keeps_its_loop"
    assert known == net_at(redis_server.url)


def test_sigterm_in_a_task_of_an_event_loop_is_said_by_the_status_alone(redis_server: RedisServer) -> None:
    """The tasks that wait for the interrupted one are cancelled, and asyncio has nothing to complain of."""
    with Process("is_told_to_end_in_a_task", redis_server.url) as process:
        ended = process.ends()

    assert (SIGTERM_STATUS, [str(ADMITTED)]) == ended
    assert "" == process.stderr
    assert ADMITTED == net_at(redis_server.url)


def test_sigterm_again_does_not_interrupt_the_last_words(own_redis: RedisServer) -> None:
    """They wait for a hub that hangs for a moment; whoever cannot wait and says it again hears nothing new."""
    with Process("rests_and_says_when_it_leaves", own_redis.url) as process:
        assert str(ADMITTED) == process.says()
        own_redis.pause()
        process.go_on()
        assert "300" == process.says()

        process.send(signal.SIGTERM)
        assert "leaving" == process.says()
        process.send(signal.SIGTERM)
        own_redis.resume()

        assert (SIGTERM_STATUS, []) == process.ends()
    assert "" == process.stderr
    assert ADMITTED + 300 == net_at(own_redis.url)


@pytest.mark.parametrize("program", ["rests", "serves"])
def test_ctrl_c_loses_nothing(program: str, redis_server: RedisServer) -> None:
    """The main thread is interrupted, as ever."""
    with Process(program, redis_server.url) as process:
        assert str(ADMITTED) == process.says()

        process.send(signal.SIGINT)

        assert (-signal.SIGINT, []) == process.ends()
    assert process.stderr.rstrip().endswith("KeyboardInterrupt")
    assert ADMITTED == net_at(redis_server.url)


def test_kill_loses_no_more_than_what_was_not_yet_heard(redis_server: RedisServer) -> None:
    """The counts that the hub had been told stay, and it was never told more than was admitted."""
    with Process("admits_for_ever", redis_server.url) as process:
        eventually(lambda: net_at(redis_server.url) > 0, "a report")
        heard = net_at(redis_server.url)

        process.send(signal.SIGKILL)

        status, said = process.ends()
    assert -signal.SIGKILL == status
    assert heard <= net_at(redis_server.url) <= int(said[-1]) + 100  # of which it had no time to speak


@pytest.mark.slow
def test_a_crash_loop_does_not_use_up_a_long_window(redis_server: RedisServer) -> None:
    """A lone worker that is killed after each twenty requests of 1000 an hour admits all of them in ten lives."""
    admitted: list[str] = []
    for _ in range(10):
        with Process("admits_twenty_an_hour", redis_server.url) as process:
            admitted.append(process.says())
            process.send(signal.SIGKILL)
            assert -signal.SIGKILL == process.ends()[0]

    assert ["20"] * 10 == admitted


def test_an_end_without_a_hub_is_quiet() -> None:
    """Nobody has ever answered: one warning says so, and the end says nothing."""
    with Process("ends_without_hub", f"redis://127.0.0.1:{free_port()}/0") as process:
        assert str(ADMITTED) == process.says()
        process.go_on()

        assert (0, []) == process.ends()
    _says_no_more_than_that_the_hub_is_unavailable(process)


def test_an_end_beside_a_name_server_that_hangs_comes() -> None:
    """No answer ever comes, and the end waits for none."""
    with Process("ends_without_name_server", "") as process:
        assert "10" == process.says()

        assert 0 == process.ends()[0]


def test_an_end_beside_a_hub_that_hangs_is_quiet(own_redis: RedisServer) -> None:
    """The last words are not heard, and not waited for much longer than an exchange may take."""
    own_redis.pause()
    with Process("ends_without_hub", own_redis.url) as process:
        assert str(ADMITTED) == process.says()
        process.go_on()

        assert (0, []) == process.ends()
    own_redis.resume()
    _says_no_more_than_that_the_hub_is_unavailable(process)


def _says_no_more_than_that_the_hub_is_unavailable(process: Process) -> None:
    lines = process.stderr.splitlines()
    assert len(lines) <= 1
    assert all("is unavailable" in line and "deciding from memory" in line for line in lines)


@pytest.mark.slow
def test_the_tests_themselves_may_inherit_an_ignored_ctrl_c() -> None:
    """`nohup make test &` ignores SIGINT; a program that a test starts then has to react to it all the same."""
    chosen = "tests/agent/processes/test_ends.py::test_ctrl_c_loses_nothing[rests]"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", chosen]
    ignoring = f"trap '' INT; exec {shlex.join(command)}"

    result = subprocess.run(["/bin/sh", "-c", ignoring], capture_output=True, text=True, check=False)

    assert "1 passed" in result.stdout, result.stdout + result.stderr
