"""How a batch and its answer travel: cells as rows of whole numbers, one after the other, and what they share before.

All numbers are little-endian.

* A batch is two strings beside its keys: an array in msgpack of what its cells share, and a row for each of them, the
  epoch, the moment of the reset, the limit, and the other fields of `CellReport` in their order, without the key.
* An answer is one string. Its first 16 bytes are the schema (16 bits), the status (8 bits), the bytes of an amount (8
  bits), the number of rows (32 bits) and the hub's time (64 bits); then come the rows, the fields of `CellAnswer` in
  their order; and the rest is the generation.

In a row, the epoch and the moment of a reset have 64 bits. All else are amounts, of 32 bits if all amounts of the batch
or answer fit into that, and of 64 bits if not; so a row of a batch has 60 bytes or 104, and one of an answer 72 or 128.
"""

# Why rows. A batch as msgpack cost a Redis 17.5 us for each cell: arrays that became tables and tables that became
# msgpack again, and a checking call for each number. A row is read at once, what has 32 bits and no sign needs no
# check, and a cell costs 6.6 us. Amounts above 32 bits are rare, so a batch that has one is wide as a whole instead of
# telling widths apart cell by cell.

from __future__ import annotations

import struct
from struct import Struct
from typing import Any, Final, cast

import msgpack

from reconverge.errors import HubUnavailable
from reconverge.hub.report import (
    ANSWER_ROWS,
    REPORT_ROWS,
    SCHEMA_VERSION,
    Answer,
    AnswerRows,
    Batch,
    LimitReport,
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
"""The kinds that the merge rule distinguishes."""
CELL_KINDS: Final[dict[str, int | str]] = {**KINDS, **{algorithm: algorithm for algorithm in PACED}}
"""The algorithm of `cells_of`, as it is written into keys. Paced limits are counted as buckets, but in other units, so
they have cells of their own."""
ANSWER_BYTES_MAX: Final = 1 << 20
"""An answer to 256 cells takes 18 kB, or 33 kB."""
ANSWER_HEADER: Final = Struct("<HBBIq")
AMOUNTS: Final = {4: False, 8: True}
"""Whether rows are wide, by the bytes of an amount."""
PROBLEM_LENGTH_MAX: Final = 200
_FIRST_FIELDS: Final = LimitReport._fields.index("interval_us") - LimitReport._fields.index("window_us")
"""So many fields of a limit, after its name and its algorithm, travel in any case. A hub of an older version knows
nothing of intervals and regions, and gets only those that there are."""


def encode_batch(batch: Batch, candidate: str, *, certainly_new: bool) -> tuple[bytes, bytes]:
    """Packs the part that the cells share, and their rows; without the keys, which go beside it.

    If the hub's data begin with it, `candidate` names their generation, and `certainly_new` if no node can
    hold allowances from before. Raises HubUnavailable when a number of a cell cannot travel.
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
        ]
    )
    return shared, encode_rows(batch)


def encode_rows(batch: Batch) -> bytes:
    """The cells of a batch, without their keys. Raises HubUnavailable when a number cannot travel."""
    cells = rows_of(batch.cells)
    if cells is not None:
        return cells.rows()
    narrow, wide = REPORT_ROWS
    try:
        return _rows(narrow, batch)
    except struct.error:
        pass  # a number needs more bits, or is none
    try:
        return _rows(wide, batch)
    except struct.error as error:
        raise HubUnavailable("protocol", f"a cell cannot be sent: {_short(error)}", applied=False) from error


def encode_answer(answer: Answer) -> bytes:
    """Packs an answer for `decode_answer`. Raises struct.error when a number cannot travel."""
    for amount_bytes, wide in AMOUNTS.items():
        row = ANSWER_ROWS[wide]
        try:
            rows = b"".join([row.pack(*cell) for cell in answer.cells])
        except struct.error:
            if wide:
                raise
            continue  # a number needs more bits
        header = ANSWER_HEADER.pack(SCHEMA_VERSION, answer.status, amount_bytes, len(answer.cells), answer.hub_us)
        return header + rows + answer.generation.encode()
    raise AssertionError("one of the two is the last")


def decode_answer(payload: object) -> Answer:
    """The answer to a batch. Raises HubUnavailable when it is not one."""
    try:
        if not isinstance(payload, bytes) or len(payload) > ANSWER_BYTES_MAX:
            raise ValueError("not a string of bytes of a sensible size")
        version, status, amount_bytes, rows, hub_us = ANSWER_HEADER.unpack_from(payload)
        if version != SCHEMA_VERSION:
            raise ValueError(f"schema {version!r} is not {SCHEMA_VERSION}")
        if amount_bytes not in AMOUNTS:
            raise ValueError(f"amounts of {amount_bytes} bytes")
        wide = AMOUNTS[amount_bytes]
        end = ANSWER_HEADER.size + rows * ANSWER_ROWS[wide].size
        if end > len(payload):
            raise ValueError(f"{rows} rows are not there")
        cells = AnswerRows(payload[ANSWER_HEADER.size : end], wide=wide)
        return Answer(hub_us, str(payload[end:], "utf-8"), Status(status), cells)
    except (ValueError, struct.error) as error:
        raise HubUnavailable("protocol", f"the answer cannot be read: {_short(error)}") from error


def decode_accounts(accounts: dict[bytes, bytes]) -> dict[str, Totals]:
    """The sums of all accounts, by limit. Raises HubUnavailable when they cannot be read."""
    sums: dict[str, Totals] = {}
    try:
        for payload in accounts.values():
            _, *flat = _unpack(payload)
            for name, charged, refunded in zip(flat[::3], flat[1::3], flat[2::3], strict=True):
                if type(name) is not str:
                    raise ValueError("the name of a limit is no string")
                add_totals(sums, {name: Totals(_whole(charged), _whole(refunded))})
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise HubUnavailable("protocol", f"the accounts cannot be read: {_short(error)}") from error
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
        raise ValueError("not a string of bytes of a sensible size")
    return msgpack.unpackb(payload, strict_map_key=True)


def _short(error: Exception) -> str:
    """Describes the error, without all of the text found instead."""
    return str(error)[:PROBLEM_LENGTH_MAX]


def _whole(value: object) -> int:
    if type(value) is not int:
        raise ValueError(f"{value!r:.40} is not a whole number")
    return value
