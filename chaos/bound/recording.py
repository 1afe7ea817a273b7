"""Writes down the steps of a process's nodes, for the judge that compares them with the model (`following.py`)."""

# Theory of operation.
#
# A step is a call by which a node changes: an admission, `Syncer.take`, `merged`, `failed` or `leave`. One lock of the
# process is held during each of them and while its line is written, so lines are in the order of the steps. A line has
# the node's state after the step (`BoundSnapshot`) for each followed key. It is written before the batch is sent, so
# each batch that reached the hub has a line, also if the process was killed.
#
# A signal handler may decide in the middle of a decision, or raise out of it. So the charge of a decision under way may
# have no line yet when another one writes its own, and never one if an exception leaves its decision. Such charges show
# in the cell, and get their lines then, no more than there are decisions under way. A handler that finds `writing` set
# does nothing, as lines would be torn.
#
# In a forked child the agent has new syncers, which are hooked as well. All this reads fields that only the kernel in
# Python shows.

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from threading import RLock
from typing import Any, Final

from reconverge import Agent
from reconverge.exchange.syncer import Syncer
from reconverge.hub.report import Answer, Batch
from reconverge.kernel.engine import COMPILED
from reconverge.simulation.model.bound.snapshots import BoundSnapshot, Looks
from reconverge_sync.codec import encode_answer
from reconverge_sync.mqtt.messages import write_batch

STEPS: Final = "steps"
"""How the names of files with steps begin."""
ADMITS, TOOK, HEARD, GAVE_UP, LEAVES = "admits", "took", "heard", "gave_up", "catches_up"
"""The kinds of steps, by the names of the methods of a `NodeWatch`."""


class Together:
    """The lock of a process under which its steps are made. A forked child has a new one, which no thread holds."""

    def __init__(self) -> None:
        self._renew()
        os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        # A signal handler may decide in the middle of a step. If it raised in an `__enter__` written in Python, the
        # lock would stay taken; CPython has no such place in that of a lock.
        self.lock = RLock()


TOGETHER: Final = Together()


class StepRecorder:
    """Writes down the steps of one agent, about the followed keys of one limit. Without such keys it does nothing."""

    def __init__(self, directory: Path, node: int, agent: int, limit: str, keys: Sequence[str]) -> None:
        assert not (keys and COMPILED)
        self._directory = directory
        self._node = node
        self._agent = agent
        self._limit = limit
        self._keys = tuple(keys)
        self._looks: dict[Syncer, list[Looks]] = {}
        self._syncer: Syncer | None = None
        self._unit = 1
        self._dated = False
        self._jumped = False
        """Whether the last answer has shown that the hub's clock jumped, so that windows were numbered anew."""
        self._file = (0, -1)
        self._written: dict[str, BoundSnapshot] = {}
        """The state of each key in the last line."""
        self.deciding = 0
        """The number of decisions under way; the caller counts them, in `together`."""
        self.writing = False
        """Whether a charge is being written down."""

    @property
    def together(self) -> AbstractContextManager[object]:
        """A context in which no other step is made."""
        return TOGETHER.lock if self._keys else nullcontext()

    def attach(self, agent: Agent) -> None:
        """Hooks into the exchanges of `agent`, also of those that it begins anew in a forked child."""
        if not self._keys:
            return
        lifecycle: Any = agent._lifecycle  # noqa: SLF001  # what the model is compared with is the inside
        begin = lifecycle.begin

        def begins() -> None:
            begin()
            self.hook(lifecycle.syncers)

        lifecycle.begin = begins
        self.hook(lifecycle.syncers)

    def admitted(self, key: str, cost: int, now_ns: int) -> None:
        """Writes down that the agent has admitted a request; the caller is still in `together`."""
        if key in self._keys and self._syncer is not None:
            self._write_charges(key, now_ns, self._syncer, cost * self._unit)

    def interrupted(self, key: str, now_ns: int) -> None:
        """Writes down what a decision has charged that an exception has left; the caller is still in `together`."""
        if key in self._keys and self._syncer is not None:
            self._write_charges(key, now_ns, self._syncer, 0)

    def _write_charges(self, key: str, now_ns: int, syncer: Syncer, cost: int) -> None:
        """Writes down a charge of `cost`, if that is not 0, after those before it that have no line yet."""
        self.writing = True
        try:
            place = self._keys.index(key)
            now, last = self._look(syncer), self._written.get(key)
            if self.deciding > bool(cost) and last is not None and now[place].cell == last.cell:
                begin = last.used if self._dated or now[place].epoch == last.epoch else 0
                charged = range(begin + self._unit, now[place].used - cost + 1, self._unit)
                for used in charged[: self.deciding - bool(cost)]:
                    at = [each._replace(used=used) if each is now[place] else each for each in now]
                    self._write_line(ADMITS, now_ns, at, key=key, cost=self._unit)
            if cost:
                self._write_line(ADMITS, now_ns, now, key=key, cost=cost)
        finally:
            self.writing = False

    def hook(self, syncers: Sequence[Syncer]) -> None:
        """Hooks into that syncer of an agent, one for each shard, that reports the followed keys."""
        table = syncers[0].kernel.tables[self._limit]
        (shard,) = {table.shard_of(key).index for key in self._keys}
        syncer = syncers[shard]
        self._syncer, self._unit, self._dated = syncer, table.unit, table.limit.dated
        self._looks = {syncer: [Looks(syncer, self._limit, key) for key in self._keys]}
        self._terms = {
            "lease_ns": syncer.kernel.lease_ns,
            "capacity": table.capacity,
            "unit": table.unit,
            "shard": shard,
        }
        take, merged, failed, leave = syncer.take, syncer.merged, syncer.failed, syncer.leave
        self._note_jumps(syncer.kernel, shard)

        def leaves(now_ns: int) -> None:
            with TOGETHER.lock:
                leave(now_ns)
                self._write(LEAVES, now_ns, syncer)

        def takes(now_ns: int) -> Batch | None:
            with TOGETHER.lock:
                batch = take(now_ns)
                self._write(TOOK, now_ns, syncer, batch=None if batch is None else write_batch(batch).hex())
                return batch

        def is_answered(batch: Batch, answer: Answer, *, sent_ns: int, now_ns: int) -> None:
            with TOGETHER.lock:
                self._jumped = False
                merged(batch, answer, sent_ns=sent_ns, now_ns=now_ns)
                facts = {"sequence": batch.sequence, "sender": batch.node, "answer": encode_answer(answer).hex()}
                self._write(HEARD, now_ns, syncer, jumped=self._jumped, **facts)

        def fails(kind: str, *, now_ns: int) -> None:
            with TOGETHER.lock:
                failed(kind, now_ns=now_ns)
                self._write(GAVE_UP, now_ns, syncer)

        syncer.take, syncer.merged = takes, is_answered  # type: ignore[method-assign]
        syncer.failed, syncer.leave = fails, leaves  # type: ignore[method-assign]

    def _note_jumps(self, kernel: Any, shard: int) -> None:
        rebase = kernel.rebase

        def rebases(shard_index: int, *, now_ns: int) -> None:
            self._jumped = self._jumped or shard_index == shard
            rebase(shard_index, now_ns=now_ns)

        kernel.rebase = rebases

    def _look(self, syncer: Syncer) -> list[BoundSnapshot]:
        return [looks.look() for looks in self._looks[syncer]]

    def _write(self, step: str, now_ns: int, syncer: Syncer, **facts: object) -> None:
        self._write_line(step, now_ns, self._look(syncer), **facts)

    def _write_line(self, step: str, now_ns: int, at: list[BoundSnapshot], **facts: object) -> None:
        pid, file = self._file
        if pid != os.getpid():
            pid = os.getpid()
            path = self._directory / f"{STEPS}-{self._node}.{pid}.{self._agent}.jsonl"
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            self._file = pid, file
            os.write(file, json.dumps(self._terms).encode() + b"\n")
        line = {"e": step, "t": now_ns, "at": at, **facts}
        os.write(file, json.dumps(line, separators=(",", ":")).encode() + b"\n")
        self._written = dict(zip(self._keys, at, strict=True))
