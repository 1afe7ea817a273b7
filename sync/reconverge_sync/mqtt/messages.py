"""Members' messages by way of a broker: claims, batches, answers and totals, as bytes.

Every message begins with two fixed bytes, the format's number and what kind of message it is. All numbers are
little-endian. A message is checked as a hub checks a batch, from any sender; reading raises
`MalformedMessage` alone.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from enum import IntEnum
from itertools import accumulate
from struct import Struct
from typing import Any, Final, NamedTuple, cast

import msgpack

from reconverge.errors import HubUnavailable
from reconverge.hub.json_codec import Malformed, read_limit
from reconverge.hub.report import (
    REPORT_ROWS,
    SCHEMA_VERSION,
    WHOLE_MAX,
    Answer,
    Batch,
    CellReport,
    LimitReport,
    Totals,
    report_of_row,
    sent_limit,
)
from reconverge_sync.codec import decode_answer, encode_answer, encode_rows
from reconverge_sync.mqtt.election import TERM_MAX, LeaderClaim

FORMAT: Final = 1
"""Rises when messages change; what a batch itself consists of has a version of its own, SCHEMA_VERSION."""
CELLS_MAX: Final = 256
"""So that no other node waits for longer than these cells take."""
LIMITS_MAX: Final = 1024
TEXT_BYTES_MAX: Final = 128
KEY_BYTES_MAX: Final = 1 << 16
MEMBER: Final = re.compile(r"[0-9a-f]{20}")
"""The name of a member; brokers of MQTT 3.1.1 need not take a name of more than 23 characters."""
_HEAD: Final = Struct("<2sBB")
_MAGIC: Final = b"rc"
_CLAIM: Final = Struct("<QQ20sB")
_BATCH: Final = Struct("<IHI")
"""The bytes of what the cells share, the number of keys, and their bytes; these come next, each key's length first."""
_REPLY: Final = Struct("<QH")
"""The sequence number that is answered, and the bytes of the node's name, which comes next."""
_NUMBER: Final = Struct("<Q")


class MessageKind(IntEnum):
    """A kind of message."""

    CLAIM = 1
    BATCH = 2
    ANSWER = 3
    QUESTION = 4
    """It asks for the totals."""
    TOTALS = 5
    LEDGER = 6
    """A part of a ledger that is handed over."""
    CALL = 7
    """Any other question to the leader, see `calls.py`; members of the version before know none of these and below."""
    REPLY = 8
    USAGE = 9
    """A part of the usage that is handed over, before the ledger."""
    INDEX = 10
    """The index of the contracts, as the broker retains it."""
    FENCE = 11
    """Between two of these; see `contracts.py`."""
    PAGE = 12
    MARK = 13
    """The mark of the secret with which keys are hashed, as the broker retains it."""


BYTES_MAX: Final = {
    MessageKind.CLAIM: 64,
    MessageKind.BATCH: 1 << 20,
    MessageKind.ANSWER: 1 << 16,
    MessageKind.QUESTION: 64,
    MessageKind.TOTALS: 1 << 20,
    MessageKind.LEDGER: 1 << 20,
    MessageKind.CALL: 1 << 20,
    MessageKind.REPLY: 1 << 20,
    MessageKind.USAGE: 1 << 20,
    MessageKind.INDEX: 1 << 18,
    MessageKind.FENCE: 64,
    MessageKind.PAGE: 1 << 20,
    MessageKind.MARK: 256,
}
"""The largest messages, by far: 256 cells whose keys have 256 bytes each take 93 kB, and their answer 33 kB."""


class MalformedMessage(Exception):
    """Raised when a message cannot be read. `kind` is a word for its fault."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        super().__init__(kind)


class Reply(NamedTuple):
    """An answer, and what it answers."""

    node: str
    sequence: int
    answer: Answer


def body(payload: bytes, kind: MessageKind) -> bytes:
    """Returns the content of a message that should be of that kind. Raises MalformedMessage."""
    if len(payload) > BYTES_MAX[kind]:
        raise MalformedMessage("size")
    if len(payload) < _HEAD.size or payload[:2] != _MAGIC:
        raise MalformedMessage("format")
    _, number, said = _HEAD.unpack_from(payload)
    if number != FORMAT:
        raise MalformedMessage("version")
    if said != kind:
        raise MalformedMessage("kind")
    return payload[_HEAD.size :]


def sealed(kind: MessageKind, content: bytes) -> bytes:
    """A message of that kind. Raises HubUnavailable if it is too large for its reader."""
    message = _HEAD.pack(_MAGIC, FORMAT, kind) + content
    if len(message) > BYTES_MAX[kind]:
        raise HubUnavailable(
            "protocol", f"{len(message)} bytes are too many for one {kind.name.lower()}", applied=False
        )
    return message


def write_claim(claim: LeaderClaim) -> bytes:
    """A claim as it travels."""
    return sealed(MessageKind.CLAIM, _CLAIM.pack(claim.term, claim.beat, claim.member.encode(), claim.answers))


def read_claim(payload: bytes) -> LeaderClaim:
    """The claim in a message. Raises MalformedMessage."""
    content = body(payload, MessageKind.CLAIM)
    if len(content) != _CLAIM.size:
        raise MalformedMessage("claim")
    term, beat, name, answers = _CLAIM.unpack(content)
    member = name.decode("latin-1")
    if not (1 <= term <= TERM_MAX and beat <= TERM_MAX and answers <= 1 and MEMBER.fullmatch(member)):
        raise MalformedMessage("claim")
    return LeaderClaim(term, member, beat, answers == 1)


def write_batch(batch: Batch) -> bytes:
    """A batch as it travels. Raises HubUnavailable if it cannot."""
    try:
        keys = [cell.key.encode() for cell in batch.cells]
        header = batch.node, batch.account, batch.shard, batch.sequence, batch.generation
        limits = [sent_limit(limit) for limit in batch.limits]
        shared = [SCHEMA_VERSION, *header, batch.interval_us, batch.lease_us, int(batch.leaving), limits]
        packed = cast("bytes", msgpack.packb(shared))
        lengths = struct.pack(f"<{len(keys)}I", *map(len, keys))
        together = b"".join(keys)
        content = _BATCH.pack(len(packed), len(keys), len(together)) + packed + lengths + together
    except (ValueError, TypeError, OverflowError, struct.error):
        raise HubUnavailable("protocol", "the batch cannot be sent", applied=False) from None
    return sealed(MessageKind.BATCH, content + encode_rows(batch))


def read_batch(payload: bytes, *, shard: int) -> Batch:
    """The batch in a message, if it is one for that shard. Raises MalformedMessage."""
    content = body(payload, MessageKind.BATCH)
    try:
        shared_bytes, cells, keys_bytes = _BATCH.unpack_from(content)
        keys_from = _BATCH.size + shared_bytes + 4 * cells
        rows_from = keys_from + keys_bytes
        if cells > CELLS_MAX or rows_from > len(content):
            raise MalformedMessage("batch")
        shared = msgpack.unpackb(content[_BATCH.size : _BATCH.size + shared_bytes], strict_map_key=True)
        lengths = struct.unpack_from(f"<{cells}I", content, keys_from - 4 * cells)
        keys = list(_keys(content[keys_from:rows_from], lengths))
        batch = _header(shared)
        reports = tuple(_reports(content[rows_from:], keys, known=len(batch.limits)))
    except (ValueError, TypeError, OverflowError, RecursionError, struct.error, msgpack.UnpackException):
        raise MalformedMessage("batch") from None
    if batch.shard != shard:
        raise MalformedMessage("shard")
    return batch._replace(cells=reports)


def _header(shared: Any) -> Batch:
    if type(shared) is not list or len(shared) != 10:
        raise MalformedMessage("batch")
    if shared[0] != SCHEMA_VERSION or type(shared[0]) is not int:
        raise MalformedMessage("schema")
    _, node, account, shard, sequence, generation, interval_us, lease_us, leaving, limits = shared
    if not (is_text(node, 2) and is_text(account, 2) and is_text(generation)):
        raise MalformedMessage("batch")
    if not (is_whole(shard) and is_whole(sequence, 1) and is_whole(interval_us, 1) and is_whole(lease_us, 1)):
        raise MalformedMessage("batch")
    if type(leaving) is not int or leaving not in (0, 1) or type(limits) is not list or len(limits) > LIMITS_MAX:
        raise MalformedMessage("batch")
    declared = tuple(_limit(limit) for limit in limits)
    return Batch(
        node, account, shard, sequence, generation, interval_us, lease_us, bool(leaving), limits=declared, cells=()
    )


def _limit(fields: Any) -> LimitReport:
    try:
        limit = read_limit(fields)
    except Malformed:
        raise MalformedMessage("limit") from None
    if not (is_text(limit.name) and is_text(limit.variant)):
        raise MalformedMessage("limit")
    return limit


def _keys(together: bytes, lengths: tuple[int, ...]) -> Iterator[str]:
    if sum(lengths) != len(together) or max(lengths, default=0) > KEY_BYTES_MAX:
        raise MalformedMessage("keys")
    for length, end in zip(lengths, accumulate(lengths), strict=True):
        yield str(together[end - length : end], "utf-8")


def _reports(rows: bytes, keys: list[str], *, known: int) -> Iterator[CellReport]:
    narrow, wide = REPORT_ROWS
    row = narrow if len(rows) == len(keys) * narrow.size else wide
    if len(rows) != len(keys) * row.size:
        raise MalformedMessage("cells")
    for key, fields in zip(keys, row.iter_unpack(rows), strict=True):
        report = report_of_row(key, fields)
        if not 0 <= report.limit < known:
            raise MalformedMessage("cells")
        epoch, reset_us, current = report.epoch, report.reset_us, report.current
        if max(epoch, -epoch, reset_us, current, -current) > WHOLE_MAX or reset_us < 0:
            raise MalformedMessage("cells")
        if row is wide and (min(report[4:]) < 0 or max(report[4:]) > WHOLE_MAX):
            raise MalformedMessage("cells")
        yield report


def write_answer(batch: Batch, answer: Answer) -> bytes:
    """The answer to a batch as it travels. Raises HubUnavailable if it cannot."""
    node = batch.node.encode()
    try:
        return sealed(MessageKind.ANSWER, _REPLY.pack(batch.sequence, len(node)) + node + encode_answer(answer))
    except struct.error:
        raise HubUnavailable("protocol", "an answer has a number that is too large to be sent") from None


def read_answer(payload: bytes) -> Reply:
    """The answer in a message. Raises MalformedMessage."""
    content = body(payload, MessageKind.ANSWER)
    try:
        sequence, length = _REPLY.unpack_from(content)
        end = _REPLY.size + length
        if length > TEXT_BYTES_MAX or end > len(content):
            raise MalformedMessage("answer")
        reply = Reply(str(content[_REPLY.size : end], "utf-8"), sequence, decode_answer(content[end:]))
    except (ValueError, struct.error, HubUnavailable):
        raise MalformedMessage("answer") from None
    if not 0 <= reply.answer.hub_us <= WHOLE_MAX or not is_text(reply.answer.generation, 1):
        raise MalformedMessage("answer")
    return reply


def write_question(number: int) -> bytes:
    """A question for the totals, by its number."""
    return sealed(MessageKind.QUESTION, _NUMBER.pack(number))


def read_question(payload: bytes) -> int:
    """The number of a question for the totals. Raises MalformedMessage."""
    content = body(payload, MessageKind.QUESTION)
    if len(content) != _NUMBER.size:
        raise MalformedMessage("question")
    return int(_NUMBER.unpack(content)[0])


def write_totals(number: int, totals: dict[str, Totals]) -> bytes:
    """The answer to a question for the totals. Raises HubUnavailable if it cannot travel."""
    try:
        return sealed(MessageKind.TOTALS, _NUMBER.pack(number) + cast("bytes", msgpack.packb(totals)))
    except (OverflowError, ValueError):
        raise HubUnavailable("protocol", "the totals have a number that is too large to be sent") from None


def read_totals(payload: bytes) -> tuple[int, dict[str, Totals]]:
    """The number of the question, and the totals. Raises MalformedMessage."""
    content = body(payload, MessageKind.TOTALS)
    try:
        (number,) = _NUMBER.unpack_from(content)
        totals = msgpack.unpackb(content[_NUMBER.size :], strict_map_key=True)
    except (ValueError, TypeError, RecursionError, struct.error, msgpack.UnpackException):
        raise MalformedMessage("totals") from None
    if type(totals) is not dict:
        raise MalformedMessage("totals")
    for name, pair in totals.items():
        # Sums of what many said, so they may be larger than what one may say.
        if not is_text(name) or type(pair) is not list or [type(number) for number in pair] != [int, int]:
            raise MalformedMessage("totals")
    return number, {name: Totals(*pair) for name, pair in totals.items()}


def is_whole(value: object, least: int = 0) -> bool:
    """Whether that is a whole number that may travel."""
    return type(value) is int and least <= value <= WHOLE_MAX


def is_text(value: object, least: int = 0, most: int = TEXT_BYTES_MAX) -> bool:
    """Whether that is a string of so many bytes."""
    return type(value) is str and least <= len(value) and len(value.encode("utf-8", "surrogatepass")) <= most
