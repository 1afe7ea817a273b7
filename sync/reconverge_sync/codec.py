"""How a batch and its answer travel: as msgpack arrays of whole numbers and short strings."""

from __future__ import annotations

from typing import Any, Final, cast

import msgpack

from reconverge.errors import HubUnavailable
from reconverge.limit import (
    FIXED_WINDOW,
    GCRA,
    PACED,
    SLIDING_LOG,
    SLIDING_SLICES,
    SLIDING_WINDOW,
    TOKEN_BUCKET,
)
from reconverge.report import SCHEMA_VERSION, Answer, Batch, CellAnswer, LimitReport, Status, Totals

KINDS: Final = {
    FIXED_WINDOW: 0,
    SLIDING_WINDOW: 1,
    TOKEN_BUCKET: 2,
    GCRA: 2,
    **dict.fromkeys(PACED, 2),
    SLIDING_SLICES: 3,
    SLIDING_LOG: 3,
}
"""What the merge rule tells apart."""
CELL_KINDS: Final = {**KINDS, **{algorithm: algorithm for algorithm in PACED}}
"""What has cells of its own: paced limits are counted as buckets, but in other units."""
ANSWER_BYTES_MAX: Final = 1 << 20
"""An answer to 256 cells takes about 20 kB."""
PROBLEM_LENGTH_MAX: Final = 200


def encode_batch(batch: Batch, candidate: str, *, certainly_new: bool) -> bytes:
    """The batch without its keys, which go beside it.

    If the hub's data begin with it, `candidate` names their incarnation, and `certainly_new` says that no node can
    hold lines from before.
    """
    return _pack(
        [
            SCHEMA_VERSION,
            batch.node,
            batch.account,
            batch.sequence,
            batch.incarnation,
            candidate,
            int(certainly_new),
            batch.interval_us,
            batch.lease_us,
            int(batch.leaving),
            [_limit(limit) for limit in batch.limits],
            [(cell.limit, *cell[2:]) for cell in batch.cells],
        ]
    )


def decode_answer(payload: object) -> Answer:
    """The answer to a batch. Raises HubUnavailable when it is not one."""
    try:
        version, hub_us, incarnation, status, cells = _unpack(payload)
        if version != SCHEMA_VERSION:
            raise ValueError(f"schema {version!r} is not {SCHEMA_VERSION}")
        if type(incarnation) is not str:
            raise ValueError("the incarnation is no string")
        answers = tuple(CellAnswer(*map(_whole, cell)) for cell in cells)
        return Answer(_whole(hub_us), incarnation, Status(status), answers)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
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
                known = sums.get(name, Totals(0, 0))
                sums[name] = Totals(known.charged + _whole(charged), known.refunded + _whole(refunded))
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise HubUnavailable("protocol", f"the accounts cannot be read: {_short(error)}") from error
    return sums


def _limit(limit: LimitReport) -> tuple[str | int, ...]:
    return (limit.name, KINDS[limit.algorithm], *limit[2:])


def _pack(value: object) -> bytes:
    return cast("bytes", msgpack.packb(value))


def _unpack(payload: object) -> Any:
    if not isinstance(payload, bytes) or len(payload) > ANSWER_BYTES_MAX:
        raise ValueError("not a string of bytes of a sensible size")
    return msgpack.unpackb(payload, strict_map_key=True)


def _short(error: Exception) -> str:
    """What is wrong, without all of what was found instead."""
    return str(error)[:PROBLEM_LENGTH_MAX]


def _whole(value: object) -> int:
    if type(value) is not int:
        raise ValueError(f"{value!r:.40} is not a whole number")
    return value
