"""Batches and answers as lists of strings and whole numbers, for hubs that send them as JSON, msgpack or the like.

All values of a message are checked when it is read. The merge rule can use every message that passes the checks; any
other raises `Malformed` before anything is merged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, NoReturn

from reconverge.errors import SHOWN_MAX
from reconverge.hub.report import (
    SCHEMA_VERSION,
    WHOLE_MAX,
    Answer,
    Batch,
    CellAnswer,
    CellReport,
    LimitReport,
    Recall,
    Status,
    Totals,
    heard_limit,
    sent_limit,
)
from reconverge.limit.limit import KNOWN_ALGORITHMS

CELLS_MAX: Final = 256
"""The most keys of one batch."""
LIMITS_MAX: Final = 65_536


class Malformed(ValueError):
    """Raised when a message contains a value that is not of the expected kind; no part of the message was used."""


class _NamedTotals(NamedTuple):
    name: str
    charged: int
    refunded: int


Ranges = Mapping[str, tuple[int, int]]
NUMBER: Final = (0, WHOLE_MAX)
SIGNED: Final = (-WHOLE_MAX, WHOLE_MAX)
POSITIVE: Final = (1, WHOLE_MAX)
_BATCH: Final[Ranges] = {"sequence": POSITIVE, "interval_us": POSITIVE, "lease_us": POSITIVE}
_LIMIT: Final[Ranges] = {
    "window_us": POSITIVE,
    "quota": POSITIVE,
    "capacity": POSITIVE,
    "overshoot_milli": (-1, WHOLE_MAX),
    "opens_us": SIGNED,
}
_CELL: Final[Ranges] = {"epoch": SIGNED, "current": SIGNED}
_ANSWER: Final[Ranges] = dict.fromkeys(CellAnswer._fields, SIGNED)


def plain_batch(batch: Batch) -> list[Any]:
    """Returns a batch as a list: the version of the schema, then lists, strings, whole numbers and one bool."""
    cells = [list(cell) for cell in batch.cells]
    limits = [list(sent_limit(limit)) for limit in batch.limits]
    return [SCHEMA_VERSION, *batch[:-3], limits, cells, batch.heard_us]


def read_batch(value: object, *, shards: int = 1) -> Batch:
    """Returns the batch from `value`, the list that `plain_batch` returned; accepts tuples in place of lists.

    `shards` is the hub's number of shards: the batch must be for one of them. Raises Malformed.
    """
    names = ("schema", *Batch._fields)
    version, *header, limits, cells, heard_us = _sequence("a batch", value, len(names), len(names))
    _check_version(version)
    fields = dict(zip(Batch._fields, header, strict=False))
    if type(fields.pop("leaving")) is not bool:
        _refuse("leaving", header[Batch._fields.index("leaving")])
    fields["heard_us"] = heard_us
    _check("batch", fields, {**_BATCH, "shard": (0, shards - 1)}, texts=("node", "account", "generation"))
    if not (fields["node"] and fields["account"]):
        raise Malformed(
            "batch.node or batch.account is an empty text; a batch must name the node that sends it, and its account"
        )
    declared = [read_limit(limit) for limit in _sequence("limits", limits, 0, LIMITS_MAX)]
    known = {**_CELL, "limit": (0, len(declared) - 1)}
    reports = [_row(CellReport, cell, known, ("key",)) for cell in _sequence("cells", cells, 0, CELLS_MAX)]
    return Batch._make((*header, tuple(declared), tuple(reports), heard_us))


def plain_answer(answer: Answer) -> list[Any]:
    """Returns an answer as a list: the version of the schema, then lists, strings and whole numbers."""
    cells = [list(cell) for cell in answer.cells]
    recalls = None if answer.recalls is None else [list(recall) for recall in answer.recalls]
    return [SCHEMA_VERSION, answer.hub_us, answer.generation, int(answer.status), cells, recalls, answer.nodes]


def read_answer(value: object) -> Answer:
    """Returns the answer from `value`, the list that `plain_answer` returned. Raises Malformed."""
    version, hub_us, generation, status, cells, recalls, nodes = _sequence("an answer", value, 7, 7)
    _check_version(version)
    fields = {"hub_us": hub_us, "generation": generation, "status": status, "nodes": nodes}
    _check("answer", fields, {"status": (0, len(Status) - 1), "nodes": (0, 2**32 - 1)}, texts=("generation",))
    rows = [_row(CellAnswer, cell, _ANSWER, ()) for cell in _sequence("cells", cells, 0, CELLS_MAX)]
    if recalls is not None:
        read = _sequence("recalls", recalls, 0, CELLS_MAX)
        recalls = tuple(_row(Recall, recall, {}, ("limit", "key")) for recall in read)
    return Answer(hub_us, generation, Status(status), tuple(rows), recalls, nodes)


def plain_totals(totals: Mapping[str, Totals]) -> dict[str, list[int]]:
    """Returns totals as a dictionary from the name of each limit to a list `[charged, refunded]`."""
    return {name: list(each) for name, each in totals.items()}


def read_totals(value: object) -> dict[str, Totals]:
    """Returns the totals from `value`, the dictionary that `plain_totals` returned. Raises Malformed."""
    if not isinstance(value, dict):
        _refuse("totals", value)
    named = [
        _row(_NamedTotals, (name, *_sequence("totals", each, 2, 2)), {}, ("name",)) for name, each in value.items()
    ]
    return {each.name: Totals(each.charged, each.refunded) for each in named}


def read_limit(value: object) -> LimitReport:
    """Returns the report of a limit from `value`, the list of fields that `sent_limit` returned. Raises Malformed."""
    fields = _sequence(LimitReport.__name__, value, len(LimitReport._fields) - 1, len(LimitReport._fields) - 1)
    limit: LimitReport = _row(LimitReport, (*fields, 0), _LIMIT, ("name", "algorithm", "variant"))
    if limit.algorithm not in KNOWN_ALGORITHMS:
        _refuse("algorithm", limit.algorithm)
    return heard_limit(limit)


def _row(kind: Any, value: object, ranges: Ranges, texts: tuple[str, ...]) -> Any:
    row = kind._make(_sequence(kind.__name__, value, len(kind._fields), len(kind._fields)))
    _check(kind.__name__, row._asdict(), ranges, texts=texts)
    return row


def _check(what: str, fields: Mapping[str, object], ranges: Ranges, *, texts: tuple[str, ...]) -> None:
    """Raises Malformed if a field in `texts` is no valid string, or another is no whole number in its range."""
    for name, value in fields.items():
        if name in texts:
            if type(value) is not str or not _encodes(value):
                _refuse(f"{what}.{name}", value)
            continue
        least, most = ranges.get(name, NUMBER)
        if type(value) is not int or not least <= value <= most:
            _refuse(f"{what}.{name}", value)


def _check_version(version: object) -> None:
    if version != SCHEMA_VERSION or type(version) is not int:
        raise Malformed(
            f"schema {_shown(version)} is not {SCHEMA_VERSION}; run one version of reconverge on both sides"
        )


def _sequence(what: str, value: object, least: int, most: int) -> Sequence[Any]:
    if not isinstance(value, list | tuple) or not least <= len(value) <= most:
        _refuse(what, value)
    return value


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True


def _refuse(name: str, value: object) -> NoReturn:
    raise Malformed(f"{name} cannot be {_shown(value)}; run one version of reconverge on both sides")


def _shown(value: object) -> str:
    """Returns a value as a short text for an error message, however large or deeply nested it is."""
    if isinstance(value, str | int) and not isinstance(value, bool):
        return ascii(value)[:SHOWN_MAX] if isinstance(value, str) or abs(value) <= WHOLE_MAX else "so large a number"
    return "true or false" if isinstance(value, bool) else f"a {type(value).__name__}"
