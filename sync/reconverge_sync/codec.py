"""Writes and reads batches and answers as bytes: shared fields first, then a row of whole numbers for each cell.

All numbers are little-endian.

* A batch is two strings, beside the list of its keys. The first is an array in msgpack of the fields that all cells
  share. The second has a row for each cell: the epoch, the moment of the reset, the limit, and then the other fields of
  `CellReport` in their order, without the key.
* An answer is one string. Its first 20 bytes are the schema (16 bits), the status (8 bits), the bytes of an amount (8
  bits), the number of rows (32 bits), the hub's time (64 bits) and the number of live nodes (32 bits); then come the
  rows, the fields of `CellAnswer` in their order; and the rest is the generation.

In a row, the epoch and the moment of a reset have 64 bits. All other fields are amounts, of 32 bits if all amounts of
the batch or answer fit into that, and of 64 bits if not; so a row of a batch has 60 or 104 bytes, and a row of an
answer 72 or 128 bytes.
"""

# Why rows. A batch as msgpack cost a Redis 17.5 us for each cell: arrays that became tables and tables that became
# msgpack again, and a checking call for each number. Redis reads a row at once, a field of 32 bits without a sign needs
# no check, and a cell costs 6.6 us. Amounts above 32 bits are rare, so a batch that has one has wide rows throughout
# instead of having a width for each cell.
#
# Rejected ways: doubles in the stored cell take twice the memory, and narrow integers are slower with Redis 6.2. Larger
# batches hold Redis up for longer than 1.8 ms.

from __future__ import annotations

import struct
from struct import Struct
from typing import Any, Final, cast

import msgpack

from reconverge.errors import ONE_VERSION, HubUnavailable
from reconverge.hub.checking.answers import shown
from reconverge.hub.report import (
    ANSWER_ROWS,
    REPORT_ROWS,
    SCHEMA_VERSION,
    Answer,
    AnswerRows,
    Batch,
    LimitReport,
    Recall,
    Status,
    Totals,
    add_totals,
    report_row,
    rows_of,
    sent_limit,
)
from reconverge.limit.limit import (
    CONCURRENCY,
    FIXED_WINDOW,
    GCRA,
    PACED,
    SLIDING_LOG,
    SLIDING_SLICES,
    SLIDING_WINDOW,
    TOKEN_BUCKET,
)

FIXED, SLIDING, BUCKET, DATED, SLOTS = range(5)
KINDS: Final = {
    FIXED_WINDOW: FIXED,
    SLIDING_WINDOW: SLIDING,
    TOKEN_BUCKET: BUCKET,
    GCRA: BUCKET,
    **dict.fromkeys(PACED, BUCKET),
    SLIDING_SLICES: DATED,
    SLIDING_LOG: DATED,
    CONCURRENCY: SLOTS,
}
"""For each algorithm, the number of its kind; algorithms of one kind are merged in the same way."""
CELL_KINDS: Final[dict[str, int | str]] = {**KINDS, **{algorithm: algorithm for algorithm in PACED}}
"""For each algorithm, the part of a cell's name that stands for it. Paced limits are merged like buckets, but counted
in other units, so they have cells of their own."""
ANSWER_BYTES_MAX: Final = 1 << 20
"""The most bytes of an answer that is decoded; an answer to 256 cells takes 18 kB or 33 kB."""
ANSWER_HEADER: Final = Struct("<HBBIqI")
RECALLS_FOLLOW: Final = b"\0"
"""The byte between an answer's generation and its recalls (requests to report keys); left out if there are none."""
AMOUNTS: Final = {4: False, 8: True}
"""Whether rows are wide, for each number of bytes that an amount may have."""
PROBLEM_LENGTH_MAX: Final = 200
_FIRST_FIELDS: Final = LimitReport._fields.index("interval_us") - LimitReport._fields.index("window_us")
"""How many of a limit's fields, after its name and algorithm, are always sent. Later fields (intervals, regions) are
left out while they are 0, because hubs of an older version do not know them."""


def encode_batch(batch: Batch, candidate: str, *, certainly_new: bool) -> tuple[bytes, bytes]:
    """Returns a batch as two strings: the fields that all cells share, and the rows of the cells without their keys.

    If the hub's data begin with this batch, `candidate` becomes the name of their generation; `certainly_new` says that
    no node can hold allowances from before. Raises HubUnavailable if a number of a cell is too large to be sent.
    """
    shared = _pack(
        [
            SCHEMA_VERSION,
            batch.node,
            batch.account,
            batch.sequence,
            batch.generation,
            candidate,
            int(certainly_new),
            batch.interval_us,
            batch.lease_us,
            int(batch.leaving),
            [_limit(limit) for limit in batch.limits],
            batch.heard_us,
        ]
    )
    return shared, encode_rows(batch)


def encode_rows(batch: Batch) -> bytes:
    """Returns the rows of a batch's cells, without keys. Raises HubUnavailable if a number is too large to be sent."""
    cells = rows_of(batch.cells)
    if cells is not None:
        return cells.rows()
    narrow, wide = REPORT_ROWS
    try:
        return _rows(narrow, batch)
    except struct.error:
        pass  # a number needs more bits, or a value is no number
    try:
        return _rows(wide, batch)
    except struct.error as error:
        problem = f"a number in the batch of shard {batch.shard} does not fit into 64 bits: {_short(error)}"
        raise HubUnavailable("protocol", f"{problem}; use smaller costs", applied=False) from error


def encode_answer(answer: Answer) -> bytes:
    """Returns an answer as bytes, for `decode_answer`. Raises struct.error if a number is too large to send."""
    for amount_bytes, wide in AMOUNTS.items():
        row = ANSWER_ROWS[wide]
        try:
            rows = b"".join([row.pack(*cell) for cell in answer.cells])
        except struct.error:
            if wide:
                raise
            continue  # a number needs more bits
        counts = amount_bytes, len(answer.cells)
        header = ANSWER_HEADER.pack(SCHEMA_VERSION, answer.status, *counts, answer.hub_us, answer.nodes)
        recalls = RECALLS_FOLLOW + _pack([list(recall) for recall in answer.recalls]) if answer.recalls else b""
        return header + rows + answer.generation.encode() + recalls
    raise AssertionError("each row format was skipped, although the widest must fit or raise struct.error: a bug")


def decode_answer(payload: object) -> Answer:
    """Returns the answer in `payload`, the reply of a hub. Raises HubUnavailable if the reply is no valid answer."""
    try:
        if not isinstance(payload, bytes) or len(payload) > ANSWER_BYTES_MAX:
            raise ValueError(f"the payload must have at most {ANSWER_BYTES_MAX} bytes, but {_kind_of(payload)}")
        version, status, amount_bytes, rows, hub_us, nodes = ANSWER_HEADER.unpack_from(payload)
        if version != SCHEMA_VERSION:
            raise ValueError(f"the schema is {version!r}, not {SCHEMA_VERSION}")
        if amount_bytes not in AMOUNTS:
            raise ValueError(f"the amounts have {amount_bytes} bytes, not 4 or 8")
        wide = AMOUNTS[amount_bytes]
        end = ANSWER_HEADER.size + rows * ANSWER_ROWS[wide].size
        if end > len(payload):
            raise ValueError(f"the header promises {rows} rows, but {len(payload)} bytes cannot contain them")
        cells = AnswerRows(payload[ANSWER_HEADER.size : end], wide=wide)
        generation, _, recalls = payload[end:].partition(RECALLS_FOLLOW)
        recalled = _read_recalls(recalls) if status == Status.MERGED else None
        return Answer(hub_us, str(generation, "utf-8"), Status(status), cells, recalled, nodes)
    except (ValueError, struct.error) as error:
        raise HubUnavailable(
            "protocol", f"the hub's answer to a batch cannot be read: {_short(error)}; {ONE_VERSION}"
        ) from error


def _read_recalls(payload: bytes) -> tuple[Recall, ...]:
    """Returns the recalls in `payload`. Raises ValueError."""
    if not payload:
        return ()
    try:
        recalls = tuple(Recall(_text(limit), _text(key), _whole(needs)) for limit, key, needs in _unpack(payload))
    except (TypeError, msgpack.UnpackException) as error:
        raise ValueError(f"the recalls cannot be read: {_short(error)}") from error
    return recalls


def _text(value: object) -> str:
    if type(value) is not str:
        raise ValueError(f"the name of a limit or a key is {shown(value)}, not text")
    return value


def decode_accounts(accounts: dict[bytes, bytes]) -> dict[str, Totals]:
    """Returns the sums of a hub's stored accounts, by limit. Raises HubUnavailable if an account is invalid."""
    sums: dict[str, Totals] = {}
    try:
        for payload in accounts.values():
            _, *flat = _unpack(payload)
            for name, charged, refunded in zip(flat[::3], flat[1::3], flat[2::3], strict=True):
                add_totals(sums, {_text(name): Totals(_whole(charged), _whole(refunded))})
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise HubUnavailable(
            "protocol", f"the accounts at the hub cannot be read: {_short(error)}; {ONE_VERSION}"
        ) from error
    return sums


def _rows(row: Struct, batch: Batch) -> bytes:
    pack = row.pack
    return b"".join([pack(*report_row(cell)) for cell in batch.cells])


def _limit(limit: LimitReport) -> tuple[str | int, ...]:
    _, _, *fields = sent_limit(limit)
    while fields[-1] == 0 and len(fields) > _FIRST_FIELDS:
        del fields[-1]
    return (limit.name, KINDS[limit.algorithm], *fields)


def _pack(value: object) -> bytes:
    return cast("bytes", msgpack.packb(value))


def _unpack(payload: object) -> Any:
    if not isinstance(payload, bytes) or len(payload) > ANSWER_BYTES_MAX:
        raise ValueError(f"the payload must have at most {ANSWER_BYTES_MAX} bytes, but {_kind_of(payload)}")
    return msgpack.unpackb(payload, strict_map_key=True)


def _kind_of(payload: object) -> str:
    """Returns the type and the length of `payload`, in words for an error message."""
    return f"it has {len(payload)} bytes" if isinstance(payload, bytes) else f"it is of type {type(payload).__name__}"


def _short(error: Exception) -> str:
    """Returns the error's text, cut off after PROBLEM_LENGTH_MAX characters."""
    return str(error)[:PROBLEM_LENGTH_MAX]


def _whole(value: object) -> int:
    if type(value) is not int:
        raise ValueError(f"{value!r:.40} is not a whole number, as each charge and refund is")
    return value
