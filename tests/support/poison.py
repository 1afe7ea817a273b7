"""Messages that no client should send to the members of a broker: noise, and messages that were once valid.

These are cut, changed, or from another age. Messages that are still valid are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import msgpack

from reconverge.hub.report import SCHEMA_VERSION, Answer, Batch, CellReport, LimitReport, Status, Totals
from reconverge.limit import FIXED_WINDOW
from reconverge_sync.merge.rule import LedgerShard
from reconverge_sync.mqtt import messages
from reconverge_sync.mqtt.election import LeaderClaim
from reconverge_sync.mqtt.handover import LedgerReader, write_ledger
from reconverge_sync.mqtt.messages import MalformedMessage, MessageKind

STRANGER = "f" * 20
EVIL = "evil.0"
"""A node that does not exist: if it were heard, the ledger would have it."""
LIMIT = LimitReport("login", FIXED_WINDOW, 60_000_000, 100, 100, 100, 7, 0)
CELL = CellReport(0, "ada", 29_000_000, 7, 0, 5, 5, 1, 1000, 0, 1, 1000, 1, 0)


MERGED = Answer(1_740_000_000_000_000, "known", Status.MERGED, ())


def batch(node: str = "node1.0", sequence: int = 1, **more: Any) -> Batch:
    """Returns an honest node's batch."""
    told = Batch(node, node[:5], 0, sequence, "", 100_000, 30_000_000, False, (LIMIT,), (CELL,))
    return told._replace(**more)


def ledger() -> LedgerShard:
    """Returns an honest member's ledger."""
    made = LedgerShard()
    made.merge(batch(), hub_us=1_740_000_000_000_000, candidate="known")
    return made


def good() -> dict[str, bytes]:
    """Returns a valid message of each kind, by its name in a topic."""
    return {
        "claims": messages.write_claim(LeaderClaim(7, STRANGER, 1, answers=True)),
        "batch": messages.write_batch(batch()),
        "answer": messages.write_answer(batch(), MERGED),
        "question": messages.write_question(1),
        "totals": messages.write_totals(1, {"login": Totals(7, 0)}),
        "ledger": next(write_ledger(ledger(), 1)),
    }


READERS: dict[str, Callable[[bytes], object]] = {
    "claims": messages.read_claim,
    "batch": lambda payload: messages.read_batch(payload, shard=0),
    "answer": messages.read_answer,
    "question": messages.read_question,
    "totals": messages.read_totals,
    "ledger": lambda payload: LedgerReader(STRANGER).read(payload),
}


def is_good(kind: str, payload: bytes) -> bool:
    """Returns whether a message can be read, so that it may have an effect. Other errors of reading are failures."""
    try:
        READERS[kind](payload)
    except MalformedMessage:
        return False
    return True


def wrong_batches() -> list[bytes]:
    """Yields batches that can be encoded, and must be rejected."""
    huge = 2**53 + 1
    limits = [
        *(_but(LIMIT, name, value) for name in ("quota", "window_us", "capacity") for value in (0, -1, huge)),
        *(_but(LIMIT, name, -1) for name in ("charged", "refunded", "withheld", "closes_us")),
        *(LIMIT._replace(algorithm=name) for name in ("", "nonsense", "fixed-window\0")),
        LIMIT._replace(name="x" * 129),
        LIMIT._replace(overshoot_milli=-2),
    ]
    cells = [
        *(_but(CELL, name, value) for name in ("allowance", "need_milli", "ask") for value in (huge, -1)),
        *(_but(CELL, name, value) for name in ("epoch", "current") for value in (huge, -huge)),
        CELL._replace(reset_us=-1),
        CELL._replace(limit=1),
    ]
    return [
        *(messages.write_batch(batch(EVIL, limits=(limit,))) for limit in limits),
        *(messages.write_batch(batch(EVIL, cells=(cell,))) for cell in cells),
        *(messages.write_batch(batch(name)) for name in ("", "x", "x" * 129)),
        messages.write_batch(batch(EVIL, shard=1)),
        messages.write_batch(batch(EVIL, cells=(CELL,) * 257)),
        messages.write_batch(batch(EVIL, 0)),
        messages.write_batch(batch(EVIL, lease_us=0)),
        *(_with_schema(SCHEMA_VERSION + step) for step in (-1, 1)),
    ]


def _but(record: Any, name: str, value: int) -> Any:
    """Returns the batch with one field changed."""
    return record._replace(**{name: value})


def _with_schema(version: int) -> bytes:
    shared = msgpack.packb([version, "node1.0", "node1", 0, 1, "", 1, 1, 0, []])
    head = messages._HEAD.pack(b"rc", messages.FORMAT, MessageKind.BATCH)
    return head + messages._BATCH.pack(len(shared), 0, 0) + bytes(shared)


def corpus(random: Random) -> Iterator[tuple[str, bytes]]:
    """Yields the messages, each with the kind of its topic."""
    yield from (spoilt for spoilt in spoilt_letters(random) if not is_good(*spoilt))


def spoilt_letters(random: Random) -> Iterator[tuple[str, bytes]]:
    """Yields noise, and changed messages, some of which may still be valid."""
    known = good()
    while True:
        kind = random.choice(sorted(known))
        payload = bytearray(known[random.choice([kind, kind, kind, *known])])
        match random.randrange(5):
            case 0:
                payload = bytearray(random.randbytes(random.randrange(300)))
            case 1:
                del payload[random.randrange(len(payload)) :]
            case 2:
                for _ in range(random.randrange(1, 4)):
                    payload[random.randrange(len(payload))] ^= 1 << random.randrange(8)
            case 3:
                payload[2] = random.choice([0, 2, 255])  # another format
            case _:
                payload += random.randbytes(random.randrange(1, 20))
        yield kind, bytes(payload)
