"""Writes down what Redis servers run, in their order, and reads from that which batches they have merged, and when."""

# Theory of operation.
#
# Only the server knows in which order it has merged batches, and whether it has merged one whose answer was lost.
# `MONITOR` prints every command, and those of scripts after the line of their script. A batch is merged if the script
# writes the record of its node: that has the batch's sequence number and the hub's time. A script that fails, or finds
# the batch outdated, writes none; the sequence number tells which. For a name whose lease is over, it writes that the
# name is gone. A server without memory refuses a script's first write, which `MONITOR` then leaves out.
#
# A server that begins again listens to nodes only when the witness listens to it, so that no command is missed; a
# master of a cluster writes nothing in its first two seconds. A killed server sends its last answers and the witness's
# last lines in one turn of its loop. Each server has a file for each time that it has begun.

from __future__ import annotations

import ast
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from io import FileIO
from itertools import count
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import msgpack

from chaos.names import OURS
from reconverge.clock import MICROSECOND_NS, SECOND_NS
from reconverge.hub.report import Batch

COMMANDS: Final = "commands"
"""How the names of the files with the commands begin; the number of the server follows."""
LISTENS, ENDED = b"listens", b"ended"
"""How lines begin that the witness adds: the clocks when it began to listen, and the moment of the server's end."""
MEASURED: Final = 20
"""How often the two clocks are read, as the thread may be interrupted between both."""
_SHARED: Final = rf"{OURS}:\{{[0-9]+\}}:".encode()
_KEPT: Final = re.compile(
    rb'\S+ \[[^]]*\] "(?:EVAL(?:SHA)?" "(?:[^"\\]|\\.)*" "[0-9]+" "%bmeta" "%bnodes" "%baccounts"'
    rb'|HSET" "%b(?:nodes|meta" "(?:stirred|schema))")' % (_SHARED, _SHARED, _SHARED, _SHARED)
)
"""The pattern of the commands that are kept: calls of the script, and what it writes of nodes."""
_ARGUMENT: Final = re.compile(rb'"((?:[^"\\]|\\.)*)"')


class Led(NamedTuple):
    """The state of a leader's ledger at a broker before a merge."""

    ledger: str
    """A name of the ledger that differs from leader to leader, also if it was handed over."""
    before: str
    """The name of the data; empty if they begin with this batch."""
    lost: bool
    """Whether these data follow on others that were lost, as the leader knows."""
    grace_us: int


class Merge(NamedTuple):
    """A batch that the hub has merged, or whose node it takes for gone (`lapsed`)."""

    node: str
    sequence: int
    hub_us: int
    lapsed: bool
    candidate: str
    """The name of the server's data, if they begin with this batch."""
    bare: Batch
    """The batch without limits and cells."""
    t_ns: int = 0
    """The moment of the merge by the machine's monotonic clock; 0 if only the server's clock shows it."""
    led: Led | None = None
    """None at a server."""
    unwritten: bool = False
    """Whether the script has written nothing: it has failed, or the batch is outdated, or the server was killed."""
    cramped: bool = False
    """Whether the server had no memory, and so no room for further keys."""


class Begun(NamedTuple):
    """The moment at which a server began, by the machine's two clocks; it has no data."""

    monotonic_ns: int
    wall_ns: int


class Ended(NamedTuple):
    """The moment at which a server ended, or its connection to the witness."""

    monotonic_ns: int


ServerEvent = Merge | Begun | Ended


class Witness:
    """Listens to servers by their unix sockets, each time that one begins, and writes down what they run."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lives = count()

    def listen(self, address: Path, server: int = 0, *, password: str = "") -> None:
        """Listens to the server with this number, at `address`, from now on, on a thread of its own."""
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(address))
        lines = connection.makefile("rb")
        for command in (f"AUTH {password}", "MONITOR")[not password :]:
            connection.sendall(f"{command}\r\n".encode())
            answer = lines.readline()
            if not answer.startswith(b"+OK"):
                raise RuntimeError(f"the server does not let itself be watched: {answer!r}")
        wall_ns, monotonic_ns = clocks()
        file = (self._directory / f"{COMMANDS}-{server}.{next(self._lives):03}").open("ab", buffering=0)
        file.write(b"%s %d %d\n" % (LISTENS, monotonic_ns, wall_ns))
        threading.Thread(target=self._write_down, args=(connection, lines, file), name="witness", daemon=True).start()

    @staticmethod
    def _write_down(connection: socket.socket, lines: BinaryIO, file: FileIO) -> None:
        with connection, lines, file:
            with suppress(OSError):  # if the server is killed
                for line in lines:
                    kept = line.removeprefix(b"+").rstrip()
                    if _KEPT.match(kept):
                        file.write(kept + b"\n")
            file.write(b"%s %d\n" % (ENDED, time.monotonic_ns()))


def clocks() -> tuple[int, int]:
    """Returns the machine's wall time and its monotonic time of one moment, in nanoseconds."""
    read: list[tuple[int, int, int]] = []
    for _ in range(MEASURED):
        before_ns, wall_ns, after_ns = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        read.append((after_ns - before_ns, wall_ns, before_ns + (after_ns - before_ns) // 2))
    _, wall_ns, monotonic_ns = min(read)
    return wall_ns, monotonic_ns


def read_servers(directory: Path, shard: int) -> Iterator[tuple[int, list[ServerEvent]]]:
    """Yields what each server has done to the ledger of a shard each time that it ran, and the server's number."""
    for path in sorted(directory.glob(f"{COMMANDS}-*")):
        yield int(path.stem.rpartition("-")[2]), list(read_commands(path, shard))


def read_commands(path: Path, shard: int) -> Iterator[ServerEvent]:
    """Yields what a server has done to the ledger of a shard, in its order, from a file of a witness."""
    prefix = f"{OURS}:{{{shard}}}:".encode()
    sent: Merge | None = None
    for line in path.read_bytes().splitlines():
        first, *rest = line.split(b" ", 3)
        if first == LISTENS:
            yield Begun(*map(int, rest))
        elif first == ENDED:
            yield Ended(int(rest[0]))
        elif prefix in line:
            words = [ast.literal_eval(f'b"{found.decode()}"') for found in _ARGUMENT.findall(line)]
            if words[0].startswith(b"EVAL"):
                if sent is not None:
                    yield sent
                sent = _sent(words, round(float(line.split(b" ", 1)[0]) * SECOND_NS / MICROSECOND_NS))
            elif words[2] == b"schema":
                sent = sent and sent._replace(cramped=False)
            elif sent is not None:
                merge = _merged(sent, words)
                if merge is not None:
                    yield merge
                    sent = None


def _merged(sent: Merge, words: list[bytes]) -> Merge | None:
    """Returns the batch `sent` as the script has merged it; None if another command has yet to show that."""
    if not words[1].endswith(b":nodes"):
        # The record was that of the node's last batch.
        return sent._replace(hub_us=int(words[3]), lapsed=True, unwritten=False)
    hub_us, sequence, *_ = map(int, msgpack.unpackb(words[3]))
    return sent._replace(hub_us=hub_us, unwritten=False) if sequence == sent.sequence else None


def _sent(words: list[bytes], hub_us: int) -> Merge:
    """Returns the batch in a call of the script that begins at `hub_us`, as yet without what the script does."""
    _, node, account, number, generation, candidate, new, interval_us, lease_us, leaving, _, heard_us = msgpack.unpackb(
        words[3 + int(words[2])]
    )
    if new:
        raise ValueError(f"the batch number {number} of {node} says that the data are certainly new, as at no Redis")
    bare = Batch(node, account, 0, number, generation, interval_us, lease_us, leaving != 0, (), (), heard_us)
    return Merge(node, number, hub_us, lapsed=False, candidate=candidate, bare=bare, unwritten=True, cramped=True)


def moment_ns(merge: Merge, begun: Begun) -> int:
    """Returns the moment of a merge by the machine's monotonic clock."""
    return merge.t_ns or merge.hub_us * MICROSECOND_NS - begun.wall_ns + begun.monotonic_ns
