"""Examines an embedded hub: whether its private server starts, and then that server like any Redis."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from reconverge.errors import HubUnavailable
from reconverge.hub.diagnosis import Diagnosis, Finding, Level
from reconverge_sync.redis.hub import RedisHub

START = "start"
LOG_BYTES_MAX = 4096


async def diagnose_embedded(
    ensure_running: Callable[[], Awaitable[None]], directory: Path, server: RedisHub, binary: str, *, runs: bool
) -> Diagnosis:
    """Diagnoses the private server, and whether it can be started; `runs` is whether it ran before the diagnosis."""
    try:
        await ensure_running()
    except HubUnavailable as error:
        last = _last_line(directory / "redis.log")
        fact = str(error).removeprefix(f"{error.kind}: ") + (f" (its last line: {last})" if last else "")
        remedy = (
            f"See that {binary} is a Redis server (RECONVERGE_REDIS_SERVER names another one), and that the directory "
            f"{directory} belongs to this user and is writable. To see the server fail:\n"
            f"  {binary} --port 0 --save ''"
        )
        return Diagnosis([Finding(START, Level.PROBLEM, fact, remedy)])
    fact = f"the private server {'runs already' if runs else f'({binary}) starts'}"
    diagnosis = await server.diagnose()
    return replace(diagnosis, findings=[Finding(START, Level.OK, fact), *diagnosis.findings])


def _last_line(log: Path) -> str:
    """Returns the last line of the file `log` that is not blank; an empty string if there is none or no file."""
    try:
        lines = log.read_bytes()[-LOG_BYTES_MAX:].decode(errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
