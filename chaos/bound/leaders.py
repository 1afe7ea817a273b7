"""Writes down what leaders merge: those members of a broker that keep the ledger, each in its own process."""

# Theory of operation.
#
# At a broker no server has the ledger, but a member, whose merges are Python. So they are written down where they are
# made: by all nodes, and by the program that runs the scenario, which is the first member. A line has the state of the
# ledger before: one without a generation is new, so that all data of the leader before are lost. Any other is the one
# of the merge before, or was handed over, which leaves out parts of it: those are worked out again.

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic_ns
from typing import Any, Final

from chaos.bound.witness import Begun, Led, Merge, ServerEvent
from chaos.judge.history import whole_lines
from reconverge.clock import MICROSECOND_NS
from reconverge.hub.report import Answer, Batch, Status
from reconverge_sync.merge.rule import LedgerShard
from reconverge_sync.mqtt.handover import LedgerReader, write_ledger
from reconverge_sync.mqtt.leader import Candidate
from reconverge_sync.mqtt.messages import read_batch, write_batch

MERGES: Final = "merges"
"""How the names of files with merges begin."""


@contextmanager
def leaders_recorded(directory: Path) -> Iterator[None]:
    """Makes every leader of this process write down its merges."""
    original = Candidate.merging

    def merging(candidate: Candidate, batch: Batch) -> Iterator[Answer | None] | None:
        begun_ns = monotonic_ns()
        steps = original(candidate, batch)
        return None if steps is None else _written_down(candidate, batch, steps, begun_ns, directory)

    of_class: Any = Candidate
    of_class.merging = merging
    try:
        yield
    finally:
        of_class.merging = original


def _written_down(
    candidate: Candidate, batch: Batch, steps: Iterator[Answer | None], begun_ns: int, directory: Path
) -> Iterator[Answer | None]:
    ledger = candidate.ledger
    assert ledger is not None
    before = {"before": ledger.generation, "lost": ledger.lost, "grace_us": ledger.grace_us, "ledger": id(ledger)}
    for answer in steps:
        if answer is not None and answer.status is not Status.STALE:
            facts = {"t": begun_ns, "hub_us": answer.hub_us, "generation": answer.generation, **before}
            facts |= {"lapsed": answer.status is Status.LAPSED, "batch": write_batch(batch).hex()}
            with (directory / f"{MERGES}-{os.getpid()}.jsonl").open("a") as file:
                file.write(json.dumps(facts) + "\n")
        yield answer


def read_leaders(directory: Path) -> list[ServerEvent]:
    """Returns the merges of all leaders in their order, after the moment at which the first of them began."""
    lines = [{"leader": path.stem, **facts} for path in directory.glob(f"{MERGES}-*") for facts in whole_lines(path)]
    if not lines:
        raise RuntimeError("no leader has merged a batch, so there is nothing to follow; run the scenario again")
    merges = [_merge(facts) for facts in sorted(lines, key=lambda facts: facts["t"])]
    return [Begun(merges[0].t_ns, merges[0].hub_us * MICROSECOND_NS), *merges]


def _merge(facts: dict[str, Any]) -> Merge:
    batch = read_batch(bytes.fromhex(facts["batch"]), shard=0)
    return Merge(
        batch.node,
        batch.sequence,
        facts["hub_us"],
        facts["lapsed"],
        facts["generation"],
        batch._replace(limits=(), cells=()),
        facts["t"],
        Led(f"{facts['leader']}.{facts['ledger']}", facts["before"], facts["lost"], facts["grace_us"]),
    )


def handed_over(ledger: LedgerShard) -> LedgerShard:
    """Returns a ledger as a leader has it that got it from another one."""
    reader = LedgerReader("")
    (whole,) = filter(None, map(reader.read, write_ledger(ledger, 1)))
    return whole[1]
