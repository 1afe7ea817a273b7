"""A vocabulary for tests of the doctor: runs it, and reads its output."""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from typing import Any

import pytest
from typer.testing import CliRunner

from reconverge import ReconvergeError
from reconverge.cli import main
from reconverge.cli.app import app
from tests.support.servers import RedisServer

PASSWORD = "sesame"  # noqa: S105  # a test's own
USER = "ada"
NEEDED = ("del", "eval", "evalsha", "hdel", "hget", "hgetall", "hmget", "hset", "pexpire", "pttl", "time")
"""The commands that the agents' user must be allowed to run."""
COLUMNS = 80
ALL_RIGHTS = tuple(f"+{command}" for command in NEEDED)


@dataclass(frozen=True)
class Checked:
    """The doctor's report, as JSON, and the status with which it ended."""

    status: int
    report: dict[str, Any]

    def findings(self, check: str) -> list[dict[str, str]]:
        return [finding for finding in self.report["findings"] if finding["check"] == check]

    def only(self, check: str) -> dict[str, str]:
        """Returns the only finding of a check."""
        (finding,) = self.findings(check)
        return finding

    def at(self, level: str) -> list[str]:
        """Returns the checks with a finding at this level, without those that depend on the machine."""
        findings = (finding for finding in self.report["findings"] if finding["check"] not in ("round trip", "clock"))
        return [finding["check"] for finding in findings if finding["level"] == level]


@dataclass(frozen=True)
class Said:
    """The output of a command, as a person sees it."""

    status: int
    stdout: str
    stderr: str

    @property
    def all(self) -> str:
        return self.stdout + self.stderr


def check(url: str, *options: str) -> Checked:
    """Checks a hub for the namespace `shop`."""
    result = CliRunner().invoke(app, ["doctor", "--json", "--hub", url, "--namespace", "shop", *options])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Checked(result.exit_code, json.loads(result.stdout))


def say_here(*words: str) -> Said:
    """Runs a command in this process, on a terminal of eighty columns, with no hub by default."""
    stdout, stderr = StringIO(), StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(stdout), redirect_stderr(stderr):
        patch.setattr(sys, "argv", ["reconverge", *words])
        patch.setenv("COLUMNS", str(COLUMNS))
        patch.delenv("RECONVERGE_HUB", raising=False)
        with pytest.raises(SystemExit) as ended:
            main()
    return Said(int(ended.value.code or 0), stdout.getvalue(), stderr.getvalue())


def say(*options: str) -> Said:
    return say_here("doctor", *options)


def said_by(*words: object) -> Said:
    """Runs a command in this process; a mistake is shown as `main` would show it, and a bug as it is."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    if isinstance(result.exception, ReconvergeError):
        return Said(2, result.stdout, str(result.exception))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Said(result.exit_code, result.stdout, result.stderr)


def allow(server: RedisServer, *rules: str, keys: str = "~shop:*") -> str:
    """Makes a user with exactly these rights. Returns the URL with which it logs in."""
    words = ("reset", "on", f">{PASSWORD}", "resetchannels", keys, "-@all", *rules)
    assert "+OK" == server.command("ACL", "SETUSER", USER, *words)

    return f"redis://{USER}:{PASSWORD}@127.0.0.1:{server.port}/0"
