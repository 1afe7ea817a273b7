"""A hub that needs nothing to be installed: a private redis-server, shared by the processes of one user and machine."""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import IO, Final

from reconverge.errors import HubUnavailable, InvalidSetting
from reconverge.hub.adopting import Adoption, HubData
from reconverge.hub.diagnosis import Diagnosis
from reconverge.hub.erasing import Erased, Erasures
from reconverge.hub.port import IndexHints
from reconverge.hub.reading import KeyQuestion, KeyReadings
from reconverge.hub.registry import HubSettings, redacted
from reconverge.hub.report import Answer, Batch, Totals
from reconverge.runtime.locks import new_lock
from reconverge_sync.embedded import supervisor
from reconverge_sync.embedded.diagnose import diagnose_embedded
from reconverge_sync.embedded.supervisor import VARIABLE, find_redis_server
from reconverge_sync.redis.hub import RedisHub
from reconverge_sync.redis.usage import RedisUsage

START_S: Final = 6.0
"""The most seconds to wait until a server is ready that this process or another one is starting."""
POLL_S: Final = 0.005
SOCKET_PATH_MAX: Final = 100
"""The longest path of the socket in bytes; the system allows 107 for a unix socket."""

_joining = new_lock(whole=True)
"""A lock held during each step of joining a server, and during a fork; otherwise a child would inherit open files of
that step, and keep them open.

It is not held while waiting for a server that is being started, as a fork would wait as well.
"""
_start_locks: Final[set[IO[str]]] = set()
"""The open files whose start locks this process holds. A forked child closes its copies; the locks stay with the
parent."""


def _close_inherited() -> None:
    while _start_locks:
        _start_locks.pop().close()


os.register_at_fork(after_in_child=_close_inherited)


class EmbeddedHub:
    """A hub on a private redis-server, which the first process starts, and which ends with the last one.

    The server listens on a unix socket in a directory that only this user can enter, and keeps nothing on disk. All
    processes with the same `embedded://NAME` share it. A supervisor process keeps it running, so that it outlives the
    process that started it, and ends after its last user, even if that one was killed. Each method but `hints` starts
    the server if it does not run.

    Raises:
        InvalidSetting: the name cannot be the name of a directory.
        MissingExtra: there is no redis-server on this machine.
    """

    def __init__(self, url: str, settings: HubSettings) -> None:
        name, rest = re.fullmatch(r"([^/?#]*)(.*)", url.partition("://")[2], re.DOTALL).groups()  # type: ignore[union-attr]
        name = name or "default"
        if rest.strip("/"):
            raise InvalidSetting("hub", redacted(url), "has something after the name; remove it")
        if not re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}", name):
            raise InvalidSetting(
                "hub", redacted(url), "has an invalid name; use up to 64 letters, digits and _.-, and no dot at first"
            )
        self._binary = find_redis_server()
        if os.environ.get(VARIABLE) and shutil.which(self._binary) is None:
            problem = "is no program that can be run; name a redis-server, or unset it to use the system's"
            raise InvalidSetting(VARIABLE, os.environ[VARIABLE], problem)
        self.directory = directory_of(name)
        self._redis = RedisHub(self.url, settings, certainly_new=(self.directory / "fresh").exists)
        self._users: IO[str] | None = None
        self._pid = 0
        self._alone = False
        """Whether this was the server's first user, so that no node can hold allowances from before."""

    @property
    def url(self) -> str:
        """The URL of the private server, for another client, which does not by itself keep the server running."""
        return f"redis+unix://{self.directory / 'redis.sock'}"

    @property
    def shards(self) -> int:
        return self._redis.shards

    async def exchange(self, batch: Batch) -> Answer:
        await self.ensure_running()
        return await self._redis.exchange(batch)

    async def totals(self) -> dict[str, Totals]:
        await self.ensure_running()
        return await self._redis.totals()

    async def post(self, payload: bytes, *, keep_s: float) -> None:
        await self.ensure_running()
        await self._redis.post(payload, keep_s=keep_s)

    async def read(self, *, bytes_max: int) -> bytes | None:
        await self.ensure_running()
        return await self._redis.read(bytes_max=bytes_max)

    @property
    def usage(self) -> RedisUsage:
        return self._redis.usage.preceded_by(self.ensure_running)

    async def read_keys(self, shard: int, questions: Sequence[KeyQuestion]) -> KeyReadings:
        await self.ensure_running()
        return await self._redis.read_keys(shard, questions)

    async def data(self, shard: int) -> HubData:
        await self.ensure_running()
        return await self._redis.data(shard)

    async def adopt(self, shard: int, generation: str) -> Adoption:
        await self.ensure_running()
        return await self._redis.adopt(shard, generation)

    async def order_erasure(self, marks: Sequence[str]) -> int:
        await self.ensure_running()
        return await self._redis.order_erasure(marks)

    async def erasures(self, since_us: int) -> Erasures:
        await self.ensure_running()
        return await self._redis.erasures(since_us)

    async def drop_keys(self, shard: int, questions: Sequence[KeyQuestion]) -> int:
        await self.ensure_running()
        return await self._redis.drop_keys(shard, questions)

    async def erase(self, shard: int, identity: str, names: Sequence[str], *, cursor: int = 0) -> Erased:
        await self.ensure_running()
        return await self._redis.erase(shard, identity, names, cursor=cursor)

    async def mark_keys(self, mark: str, *, keep_s: float, limit: str = "") -> str:
        await self.ensure_running()
        return await self._redis.mark_keys(mark, keep_s=keep_s, limit=limit)

    async def read_index(self, *, bytes_max: int) -> bytes | None:
        await self.ensure_running()
        return await self._redis.read_index(bytes_max=bytes_max)

    async def swap_index(self, payload: bytes, *, over: bytes | None, bytes_max: int, keep_s: float) -> bool:
        """Replaces the index of the contracts; returns whether it did.

        The index is lost when the last user of the server ends.
        """
        await self.ensure_running()
        return await self._redis.swap_index(payload, over=over, bytes_max=bytes_max, keep_s=keep_s)

    async def put_page(self, digest: str, payload: bytes, *, keep_s: float) -> None:
        await self.ensure_running()
        await self._redis.put_page(digest, payload, keep_s=keep_s)

    async def get_page(self, digest: str, *, bytes_max: int) -> bytes | None:
        await self.ensure_running()
        return await self._redis.get_page(digest, bytes_max=bytes_max)

    async def keep_pages(self, digests: Sequence[str], *, keep_s: float) -> list[str]:
        await self.ensure_running()
        return await self._redis.keep_pages(digests, keep_s=keep_s)

    def hints(self) -> IndexHints:
        """Returns a listener for hints of changed contracts; the listener alone does not keep the server running."""
        return self._redis.hints()

    async def watch(self, *, keep_s: float) -> None:
        await self.ensure_running()
        await self._redis.watch(keep_s=keep_s)

    async def watched_s(self) -> float:
        await self.ensure_running()
        return await self._redis.watched_s()

    async def leave_snapshot(self, name: str, payload: bytes, *, keep_s: float) -> bool:
        await self.ensure_running()
        return await self._redis.leave_snapshot(name, payload, keep_s=keep_s)

    async def snapshots(self) -> Mapping[str, bytes]:
        await self.ensure_running()
        return await self._redis.snapshots()

    async def diagnose(self) -> Diagnosis:
        return await diagnose_embedded(
            self.ensure_running, self.directory, self._redis, self._binary, runs=self._ready()
        )

    async def close(self) -> None:
        """Ends this process's use of the server. The server ends when its last user does."""
        await self._redis.close()
        if self._users is not None:
            self._users.close()  # in a fork it is the parent's, which keeps the lock
        self._users = None

    async def ensure_running(self) -> None:
        """Starts the server if it does not run, and keeps it running until `close`. Raises HubUnavailable."""
        if self._users is not None and self._pid == os.getpid() and self._ready():
            return
        try:
            await asyncio.to_thread(self._join)
        except OSError as error:
            raise HubUnavailable("embedded", f"{self.directory}: {error}", applied=False) from None

    def _ready(self) -> bool:
        """Returns whether the server is ready: the file `ready` exists, and a supervisor runs.

        The file alone does not show it, because a killed supervisor leaves the file behind.
        """
        return (self.directory / "ready").exists() and self._kept()

    def _kept(self) -> bool:
        """Returns whether a supervisor keeps the server running: it then holds the lock of the directory."""
        with _joining:
            directory = os.open(self.directory, os.O_RDONLY)
            try:
                return not _try_lock(directory, fcntl.LOCK_SH)
            finally:
                os.close(directory)

    def _join(self) -> None:
        """Makes this process a user of the server, and starts the server if it does not run."""
        # The owner of the parent directory could replace our directory by another.
        for directory in (self.directory.parent, self.directory):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = directory.lstat()
            if not stat.S_ISDIR(found.st_mode):
                raise OSError(f"{directory} is a link or a file, not a directory; remove it")
            if found.st_uid != os.getuid():
                raise OSError(f"the directory belongs to the user {found.st_uid}; name another hub in the URL")
            if found.st_mode & 0o077:
                directory.chmod(0o700)
        deadline_s = time.monotonic() + START_S
        while time.monotonic() < deadline_s:
            if self._hold_users_lock() and (self._ready() or self._start(deadline_s)):
                self._alone = False  # if another server has to be started after this one, nodes may hold allowances
                return
            time.sleep(POLL_S)
        log = self.directory / "redis.log"
        raise HubUnavailable("embedded", f"{self._binary} did not start; read the reason in {log}", applied=False)

    def _hold_users_lock(self) -> bool:
        """Acquires the shared lock that keeps the server running; returns False while the server is being stopped."""
        with _joining:
            return self._holds_users_lock()

    def _holds_users_lock(self) -> bool:
        if self._users is not None and self._pid == os.getpid():
            return True
        users = (self.directory / "users.lock").open("a")
        self._alone = _try_lock(users, fcntl.LOCK_EX)
        if not _try_lock(users, fcntl.LOCK_SH):
            users.close()
            return False
        if self._users is not None:
            self._users.close()  # the parent's, which keeps the lock
        self._users, self._pid = users, os.getpid()
        return True

    def _start(self, deadline_s: float) -> bool:
        """Starts a supervisor, unless another process is starting one; returns whether the server is ready."""
        with _joining:
            lock = (self.directory / "start.lock").open("a")
            _start_locks.add(lock)
        try:
            with _joining:
                starts = _try_lock(lock, fcntl.LOCK_EX) and not self._ready()
                begun = self._supervisor() if starts else None
            if begun is not None:
                begun.wait()  # the supervisor goes into the background, so this returns at once and leaves no child
            while not self._ready() and time.monotonic() < deadline_s:
                time.sleep(POLL_S)
        finally:
            with _joining:
                _start_locks.discard(lock)
                lock.close()
        return self._ready()

    def _supervisor(self) -> subprocess.Popen[bytes]:
        """Starts and returns the supervisor process, which keeps the server running."""
        command = [*_interpreter(), supervisor.__file__, str(self.directory.absolute()), self._binary]
        command += ["fresh"] if self._alone else []
        self._alone = False  # other processes may use the server by the time it has to be started again
        return subprocess.Popen(
            command,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def __repr__(self) -> str:
        return f"EmbeddedHub({str(self.directory)!r})"


def directory_of(name: str) -> Path:
    """Returns the directory of the server `name`: below the user's runtime directory, or else a temporary one."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    parent = Path(runtime) if runtime and os.access(runtime, os.W_OK) else Path(tempfile.gettempdir())
    directory = parent / f"reconverge-{os.getuid()}" / name
    if len(str(directory)) > SOCKET_PATH_MAX - len("/redis.sock"):
        digest = sha256(str(directory).encode()).hexdigest()[:16]
        directory = Path("/tmp") / f"reconverge-{os.getuid()}" / digest  # noqa: S108  # its owner is checked
    return directory


def open_embedded(url: str, settings: HubSettings) -> EmbeddedHub:
    """Returns the hub of an `embedded://` URL."""
    return EmbeddedHub(url, settings)


def _interpreter() -> list[str]:
    """Returns the command of a Python that imports nothing but its own modules, to run the supervisor.

    It imports nothing from the working directory, which may hold files of other users, nor from the directory of the
    script, nor from the paths of the environment.
    """
    return [sys.executable, "-I", "-S"]


def _try_lock(file: IO[str] | int, how: int) -> bool:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
