"""Writes and reads members' messages as bytes: claims, batches, answers and totals.

Every message begins with two fixed bytes, the format's number and the number of its kind. All numbers are
little-endian. A message from any sender is checked as a hub checks a batch; reading raises `MalformedMessage` and
nothing else.
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

from reconverge.errors import ONE_VERSION, HubUnavailable
from reconverge.hub.checking.answers import shown
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
"""The number of the messages' format, which rises when they change. Batches also have a version of their own,
SCHEMA_VERSION."""
CELLS_MAX: Final = 256
"""The most cells in a batch, so that merging one batch does not hold up other nodes for long."""
LIMITS_MAX: Final = 1024
TEXT_BYTES_MAX: Final = 128
KEY_BYTES_MAX: Final = 1 << 16
MEMBER: Final = re.compile(r"[0-9a-f]{20}")
"""The pattern of a member's name. It is short, because brokers of MQTT 3.1.1 need not accept names of more than 23
characters."""
_HEAD: Final = Struct("<2sBB")
_MAGIC: Final = b"rc"
_CLAIM: Final = Struct("<QQ20sB")
_BATCH: Final = Struct("<IHI")
"""The head of a batch: the length of the shared fields in bytes, the number of keys, and the length of all keys in
bytes. The fields follow, and the keys, each with its length."""
_REPLY: Final = Struct("<QH")
"""The head of an answer: the sequence number of the answered batch, and the length of the node's name, which
follows."""
_NUMBER: Final = Struct("<Q")


class MessageKind(IntEnum):
    """The kinds of messages between members, and of messages that the broker retains."""

    CLAIM = 1
    BATCH = 2
    ANSWER = 3
    QUESTION = 4
    """A question about the totals of charges and refunds."""
    TOTALS = 5
    LEDGER = 6
    """A part of a ledger, from a leader to its successor."""
    CALL = 7
    """Any other question to the leader, see `calls.py`.

    Members of the version before this one know neither this kind nor the kinds below.
    """
    REPLY = 8
    USAGE = 9
    """A part of the usage, from a leader to its successor, before the ledger."""
    INDEX = 10
    """The index of the contracts, as the broker retains it."""
    FENCE = 11
    """A message that the leader sends to itself before it compares the index; see `contracts.py`."""
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
"""The most bytes of a message of each kind. 256 cells with keys of 256 bytes take 93 kB, and their answer 33 kB."""


BROKER_BUSY: Final = "the broker takes messages more slowly than this member sends them; try again later"
CONNECTION_LOST: Final = "the connection to the broker was lost before an answer came; check that the broker runs"


class MalformedMessage(Exception):
    """Raised when a message is invalid. `kind` is a word for the fault, by which such messages are counted.

    `problem` describes the fault: which part of the message is invalid, with its value.
    """

    def __init__(self, kind: str, problem: str) -> None:
        self.kind = kind
        self.problem = problem
        super().__init__(
            f"{kind}: a message of MQTT was dropped, because {problem}. If more follow, run one version of reconverge "
            "on all members, and let only them write to the topics"
        )


class Reply(NamedTuple):
    """An answer, with the name of the node and the sequence number of the batch that is answered."""

    node: str
    sequence: int
    answer: Answer


def body(payload: bytes, kind: MessageKind) -> bytes:
    """Returns the content of a message, without its head. Raises MalformedMessage if the message is not of `kind`."""
    if len(payload) > BYTES_MAX[kind]:
        raise MalformedMessage("size", f"its {len(payload)} bytes are more than the {BYTES_MAX[kind]} of a {kind.name}")
    if len(payload) < _HEAD.size or payload[:2] != _MAGIC:
        raise MalformedMessage("format", f"it begins with {payload[:2]!r}, where {_MAGIC!r} is expected")
    _, number, said = _HEAD.unpack_from(payload)
    if number != FORMAT:
        raise MalformedMessage("version", f"it has the format {number}, not {FORMAT}; update all members")
    if said != kind:
        raise MalformedMessage("kind", f"it is of kind {said}, where {kind.name} ({kind}) is expected")
    return payload[_HEAD.size :]


def sealed(kind: MessageKind, content: bytes) -> bytes:
    """Returns a message of `kind` with `content`. Raises HubUnavailable if it is longer than its reader accepts."""
    message = _HEAD.pack(_MAGIC, FORMAT, kind) + content
    if len(message) > BYTES_MAX[kind]:
        raise HubUnavailable(
            "protocol",
            f"a message of kind {kind.name} has {len(message)} bytes, and at most {BYTES_MAX[kind]} can be sent; "
            "use shorter keys and names",
            applied=False,
        )
    return message


def write_claim(claim: LeaderClaim) -> bytes:
    """Returns a message that contains a claim."""
    return sealed(MessageKind.CLAIM, _CLAIM.pack(claim.term, claim.beat, claim.member.encode(), claim.answers))


def read_claim(payload: bytes) -> LeaderClaim:
    """Returns the claim in a message. Raises MalformedMessage if it has no valid claim."""
    content = body(payload, MessageKind.CLAIM)
    if len(content) != _CLAIM.size:
        raise MalformedMessage("claim", f"the claim of a leader has {len(content)} bytes, not {_CLAIM.size}")
    term, beat, name, answers = _CLAIM.unpack(content)
    member = name.decode("latin-1")
    if not (1 <= term <= TERM_MAX and beat <= TERM_MAX and answers <= 1 and MEMBER.fullmatch(member)):
        problem = (
            f"a member claims to be the leader with the term {term} (1 to {TERM_MAX} is valid), the beat {beat} (0 to"
            f" {TERM_MAX}), the flag {answers} (0 or 1) and the name {member!r} (20 hexadecimal digits)"
        )
        raise MalformedMessage("claim", problem)
    return LeaderClaim(term, member, beat, answers == 1)


def write_batch(batch: Batch) -> bytes:
    """Returns a message that contains a batch. Raises HubUnavailable if the batch cannot be sent."""
    try:
        keys = [cell.key.encode() for cell in batch.cells]
        header = batch.node, batch.account, batch.shard, batch.sequence, batch.generation
        limits = [sent_limit(limit) for limit in batch.limits]
        shared = [
            SCHEMA_VERSION,
            *header,
            batch.interval_us,
            batch.lease_us,
            int(batch.leaving),
            limits,
            batch.heard_us,
        ]
        packed = cast("bytes", msgpack.packb(shared))
        lengths = struct.pack(f"<{len(keys)}I", *map(len, keys))
        together = b"".join(keys)
        content = _BATCH.pack(len(packed), len(keys), len(together)) + packed + lengths + together
    except (ValueError, TypeError, OverflowError, struct.error):
        problem = f"the batch of {len(batch.cells)} cells of shard {batch.shard} cannot be written as a message of MQTT"
        raise HubUnavailable("protocol", f"{problem}; use smaller costs", applied=False) from None
    return sealed(MessageKind.BATCH, content + encode_rows(batch))


def read_batch(payload: bytes, *, shard: int) -> Batch:
    """Returns the batch in a message. Raises MalformedMessage if there is none, or if it is not for `shard`."""
    content = body(payload, MessageKind.BATCH)
    try:
        shared_bytes, cells, keys_bytes = _BATCH.unpack_from(content)
        keys_from = _BATCH.size + shared_bytes + 4 * cells
        rows_from = keys_from + keys_bytes
        if cells > CELLS_MAX or rows_from > len(content):
            raise MalformedMessage(
                "batch", f"{len(content)} bytes of a batch name {cells} cells; at most {CELLS_MAX} can be"
            )
        shared = msgpack.unpackb(content[_BATCH.size : _BATCH.size + shared_bytes], strict_map_key=True)
        lengths = struct.unpack_from(f"<{cells}I", content, keys_from - 4 * cells)
        keys = list(_keys(content[keys_from:rows_from], lengths))
        batch = _header(shared)
        reports = tuple(_reports(content[rows_from:], keys, known=len(batch.limits)))
    except (ValueError, TypeError, OverflowError, RecursionError, struct.error, msgpack.UnpackException):
        raise MalformedMessage("batch", f"a batch of {len(content)} bytes cannot be decoded") from None
    if batch.shard != shard:
        raise MalformedMessage("shard", f"its batch is of shard {batch.shard}, and its topic of shard {shard}")
    return batch._replace(cells=reports)


def _header(shared: Any) -> Batch:
    if type(shared) is not list or len(shared) != 11:
        raise MalformedMessage("batch", f"the head of a batch is {shown(shared)}, not a list of 11 fields")
    if shared[0] != SCHEMA_VERSION or type(shared[0]) is not int:
        raise MalformedMessage("schema", f"its schema is {shown(shared[0])}, not {SCHEMA_VERSION}; update all members")
    _, node, account, shard, sequence, generation, interval_us, lease_us, leaving, limits, heard_us = shared
    if not (is_text(node, 2) and is_text(account, 2) and is_text(generation)):
        raise MalformedMessage(
            "batch", f"a text of a batch is invalid: node {shown(node)}, account {shown(account)}, generation"
        )
    if not (is_whole(shard) and is_whole(sequence, 1) and is_whole(interval_us, 1) and is_whole(lease_us, 1)):
        raise MalformedMessage(
            "batch",
            f"a number of a batch is invalid: shard {shown(shard)}, sequence {shown(sequence)}, interval or lease",
        )
    if not is_whole(heard_us):
        raise MalformedMessage("batch", f"`heard_us` of a batch must be a moment, not {shown(heard_us)}")
    if type(leaving) is not int or leaving not in (0, 1):
        raise MalformedMessage("batch", f"`leaving` of a batch must be 0 or 1, not {shown(leaving)}")
    if type(limits) is not list or len(limits) > LIMITS_MAX:
        raise MalformedMessage("batch", f"the limits of a batch must be a list of at most {LIMITS_MAX}")
    declared = tuple(_limit(limit) for limit in limits)
    header = node, account, shard, sequence, generation, interval_us, lease_us, bool(leaving)
    return Batch(*header, limits=declared, cells=(), heard_us=heard_us)


def _limit(fields: Any) -> LimitReport:
    try:
        limit = read_limit(fields)
    except Malformed as error:
        raise MalformedMessage("limit", f"a limit of its batch cannot be read: {error}") from None
    if not (is_text(limit.name) and is_text(limit.variant)):
        raise MalformedMessage(
            "limit", f"the name {shown(limit.name)} or the variant of a limit of its batch is too long"
        )
    return limit


def _keys(together: bytes, lengths: tuple[int, ...]) -> Iterator[str]:
    if sum(lengths) != len(together) or max(lengths, default=0) > KEY_BYTES_MAX:
        raise MalformedMessage(
            "keys", f"its keys do not have the lengths in its head, or one has more than {KEY_BYTES_MAX} bytes"
        )
    for length, end in zip(lengths, accumulate(lengths), strict=True):
        yield str(together[end - length : end], "utf-8")


def _reports(rows: bytes, keys: list[str], *, known: int) -> Iterator[CellReport]:
    narrow, wide = REPORT_ROWS
    row = narrow if len(rows) == len(keys) * narrow.size else wide
    if len(rows) != len(keys) * row.size:
        raise MalformedMessage("cells", f"its {len(rows)} bytes of cells are not {len(keys)} rows of equal length")
    for key, fields in zip(keys, row.iter_unpack(rows), strict=True):
        report = report_of_row(key, fields)
        if not 0 <= report.limit < known:
            raise MalformedMessage(
                "cells",
                f"a cell names the limit at place {report.limit}, counted from 0, of a batch with {known} limits",
            )
        epoch, reset_us, current = report.epoch, report.reset_us, report.current
        if max(epoch, -epoch, reset_us, current, -current) > WHOLE_MAX or reset_us < 0:
            raise MalformedMessage("cells", f"a cell has epoch {epoch}, reset {reset_us} or use {current} out of range")
        if row is wide and (min(report[4:]) < 0 or max(report[4:]) > WHOLE_MAX):
            raise MalformedMessage("cells", f"a number of a cell is not between 0 and {WHOLE_MAX}: {report[4:]}")
        yield report


def write_answer(batch: Batch, answer: Answer) -> bytes:
    """Returns a message that contains the answer to `batch`. Raises HubUnavailable if the answer cannot be sent."""
    node = batch.node.encode()
    try:
        return sealed(MessageKind.ANSWER, _REPLY.pack(batch.sequence, len(node)) + node + encode_answer(answer))
    except struct.error:
        problem = f"the leader's answer for shard {batch.shard} has a number of more than 64 bits"
        raise HubUnavailable("protocol", f"{problem}; {ONE_VERSION}") from None


def read_answer(payload: bytes) -> Reply:
    """Returns the answer in a message. Raises MalformedMessage if it has no valid answer."""
    content = body(payload, MessageKind.ANSWER)
    try:
        sequence, length = _REPLY.unpack_from(content)
        end = _REPLY.size + length
        if length > TEXT_BYTES_MAX or end > len(content):
            raise MalformedMessage(
                "answer", f"the node's name of {length} bytes is longer than the answer or its bound"
            )
        reply = Reply(str(content[_REPLY.size : end], "utf-8"), sequence, decode_answer(content[end:]))
    except (ValueError, struct.error, HubUnavailable) as error:
        raise MalformedMessage("answer", f"the leader's answer cannot be decoded: {error}") from None
    if not 0 <= reply.answer.hub_us <= WHOLE_MAX or not is_text(reply.answer.generation, 1):
        raise MalformedMessage(
            "answer", f"the clock {reply.answer.hub_us} or the generation in the leader's answer is out of range"
        )
    return reply


def write_question(number: int) -> bytes:
    """Returns a message that asks for the totals; `number` is the number of the question."""
    return sealed(MessageKind.QUESTION, _NUMBER.pack(number))


def read_question(payload: bytes) -> int:
    """Returns the number of a question for the totals. Raises MalformedMessage if `payload` is no such question."""
    content = body(payload, MessageKind.QUESTION)
    if len(content) != _NUMBER.size:
        raise MalformedMessage("question", f"a question for totals has {len(content)} bytes, not {_NUMBER.size}")
    return int(_NUMBER.unpack(content)[0])


def write_totals(number: int, totals: dict[str, Totals]) -> bytes:
    """Returns a message that answers the question `number` with the totals. Raises HubUnavailable if too large."""
    try:
        return sealed(MessageKind.TOTALS, _NUMBER.pack(number) + cast("bytes", msgpack.packb(totals)))
    except (OverflowError, ValueError):
        problem = f"the totals of {len(totals)} limits have a number of more than 64 bits"
        raise HubUnavailable("protocol", f"{problem}; {ONE_VERSION}") from None


def read_totals(payload: bytes) -> tuple[int, dict[str, Totals]]:
    """Returns the number of the answered question, and the totals. Raises MalformedMessage if `payload` is invalid."""
    content = body(payload, MessageKind.TOTALS)
    try:
        (number,) = _NUMBER.unpack_from(content)
        totals = msgpack.unpackb(content[_NUMBER.size :], strict_map_key=True)
    except (ValueError, TypeError, RecursionError, struct.error, msgpack.UnpackException):
        raise MalformedMessage("totals", f"totals of {len(content)} bytes cannot be decoded") from None
    if type(totals) is not dict:
        raise MalformedMessage("totals", f"the totals are of type {type(totals).__name__}, not a map of limits' names")
    for name, pair in totals.items():
        # Sums over many accounts, so they may be larger than the largest number of one.
        if not is_text(name) or type(pair) is not list or [type(number) for number in pair] != [int, int]:
            raise MalformedMessage("totals", f"the total of limit {name!r:.80} is not two whole numbers")
    return number, {name: Totals(*pair) for name, pair in totals.items()}


def is_whole(value: object, least: int = 0) -> bool:
    """Returns whether `value` is a whole number from `least` to the largest that a message may contain."""
    return type(value) is int and least <= value <= WHOLE_MAX


def is_text(value: object, least: int = 0, most: int = TEXT_BYTES_MAX) -> bool:
    """Returns whether `value` is a string of at least `least` characters, and at most `most` bytes in UTF-8."""
    return type(value) is str and least <= len(value) and len(value.encode("utf-8", "surrogatepass")) <= most
