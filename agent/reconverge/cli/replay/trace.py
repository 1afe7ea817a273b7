"""Reads a recording of requests from a CSV file, which may be gzipped."""

from __future__ import annotations

import csv
import gzip
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, NamedTuple, TypeVar

from reconverge.clock import SECOND_NS
from reconverge.errors import InvalidKey, ReconvergeError
from reconverge.simulation import SimulatedArrival

TIME: Final = "t_s"
SHARED_KEY: Final = "*"
"""A value for an option in place of a column's name: all requests share one key."""
COST_MAX: Final = 10**12
KEY_BYTES_MAX: Final = 256
FIELD_CHARACTERS_MAX: Final = 10_000
ALL: Final = "all"
"""The key that all requests share."""
REST: Final = "\x00rest"
"""The name under which a row keeps the fields that have no column."""

Row = dict[str, str | None]
"""A row of a recording, by column."""
_Item = TypeVar("_Item")


class InvalidTrace(ReconvergeError, ValueError):
    """Raised when a recording cannot be read. The message names the file, and the line if the mistake is in one."""

    def __init__(self, path: Path, problem: str, line: int | None = None) -> None:
        self.path = path
        self.line = line
        where = f"{path}" if line is None else f"{path}:{line}"
        super().__init__(f"{where}: {problem}")


class RecordedRequest(NamedTuple):
    """One request of a recording."""

    t_s: float
    """Seconds since the recording began."""
    key: str
    cost: int
    """The part of the cost that is known before the request is made."""
    settle: int
    """The part of the cost that is known only afterwards."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The names of a recording's columns. Without `cost` a request costs 1; without `settle` no cost is added later."""

    key: str = SHARED_KEY
    cost: str | None = None
    settle: str | None = None

    def needed(self) -> list[str]:
        """Returns the names of the columns that a recording must have."""
        named = [TIME, self.key, self.cost, self.settle]
        return [name for name in named if name is not None and name != SHARED_KEY]


def read_trace(path: Path, columns: Columns) -> list[RecordedRequest]:
    """Returns all requests of a recording in the order of their times, the first of them at 0.

    Raises:
        InvalidTrace: the file cannot be opened, lacks a column, or has a bad row.
    """
    requests = list(each_row(path, columns.needed(), lambda row: _request(row, columns)))
    requests.sort(key=lambda request: request.t_s)
    begin_s = requests[0].t_s
    return [request._replace(t_s=request.t_s - begin_s) for request in requests]


def without_gaps(requests: list[RecordedRequest], longest_s: float) -> list[RecordedRequest]:
    """Returns the same requests, with every idle stretch shortened to `longest_s` seconds."""
    shortened = []
    skipped_s = last_s = 0.0
    for request in requests:
        skipped_s += max(0.0, request.t_s - last_s - longest_s)
        last_s = request.t_s
        shortened.append(request._replace(t_s=request.t_s - skipped_s))
    return shortened


def read_arrivals(path: Path, nodes: int) -> list[SimulatedArrival]:
    """Reads requests for a simulation from a file with the columns `t_s`, `node`, and optionally `key` and `cost`.

    Raises:
        InvalidTrace: the file cannot be opened, lacks a column, has a bad row, or names a node that does not exist.
    """
    return sorted(each_row(path, [TIME, "node"], lambda row: _arrival(row, nodes)))


def each_row(path: Path, needed: Sequence[str], parse: Callable[[Row], _Item]) -> Iterator[_Item]:
    """Yields the result of `parse` for each row of a recording, which must have at least one row.

    A ValueError of `parse` is raised as an InvalidTrace that names the line.

    Raises:
        InvalidTrace: the file cannot be opened, lacks a column, or has a bad row.
    """
    found = False
    try:
        with _opened(path) as file:
            for item in _rows(path, file, needed, parse):
                found = True
                yield item
    except FileNotFoundError:
        raise InvalidTrace(path, "there is no such file; give the path of a CSV file of requests") from None
    except UnicodeDecodeError:
        raise InvalidTrace(path, "is not a text file in UTF-8; a gzipped one has to end in .gz") from None
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidTrace(path, f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not found:
        raise InvalidTrace(path, "has no requests; add a line for each, below the line of columns")


def _opened(path: Path) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", newline="")
    return path.open(encoding="utf-8", newline="")


def _rows(path: Path, file: IO[str], needed: Sequence[str], parse: Callable[[Row], _Item]) -> Iterator[_Item]:
    csv.field_size_limit(FIELD_CHARACTERS_MAX)
    reader = csv.DictReader(file, restkey=REST)
    present = reader.fieldnames or []
    for name in needed:
        if name not in present:
            raise InvalidTrace(path, f"has no column {name!r}; its columns: {', '.join(present) or 'none'}", 1)
    try:
        for row in reader:
            if REST in row:
                raise ValueError(f"the line has more fields than there are columns; remove the last {len(row[REST])}")
            yield parse(row)
    except (ValueError, csv.Error) as error:
        raise InvalidTrace(path, str(error), reader.line_num) from None


def _request(row: Row, columns: Columns) -> RecordedRequest:
    key = ALL if columns.key == SHARED_KEY else key_in(row, columns.key)
    cost = 1 if columns.cost is None else amount_in(row, columns.cost)
    settle = 0 if columns.settle is None else amount_in(row, columns.settle)
    return RecordedRequest(moment_s_in(row), key, cost, settle)


def _arrival(row: Row, nodes: int) -> SimulatedArrival:
    node = amount_in(row, "node")
    if node >= nodes:
        raise ValueError(f"node is {node}, but the nodes are 0 to {nodes - 1}; correct it, or have more nodes")
    moment_s = moment_s_in(row)
    if moment_s < 0:
        raise ValueError(f"{TIME} is {moment_s:g}, before the start; times begin with 0")
    key = key_in(row, "key") if "key" in row else ALL
    cost = amount_in(row, "cost") if "cost" in row else 1
    return SimulatedArrival(round(moment_s * SECOND_NS), node, key, cost)


def moment_s_in(row: Row) -> float:
    """Returns the time in a row of a recording, in seconds. Raises ValueError if it is no valid time."""
    text = field_in(row, TIME)
    try:
        t_s = float(text)
    except ValueError:
        raise ValueError(f"{TIME} is {text!r}, not a number of seconds") from None
    if not math.isfinite(t_s):
        raise ValueError(f"{TIME} is {text!r}, not a finite number; give seconds")
    return t_s


def key_in(row: Row, name: str) -> str:
    """Returns the text of a column, which must be a valid key. Raises ValueError, or its subclass InvalidKey."""
    key = field_in(row, name)
    if len(key.encode()) > KEY_BYTES_MAX or key.startswith("\x00"):
        raise InvalidKey(f"{name} is {key[:40]!r}..., which cannot be a key of at most {KEY_BYTES_MAX} bytes")
    return key


def field_in(row: Row, name: str) -> str:
    """Returns the text of the column `name` in a row. Raises ValueError if it is empty."""
    text = row[name]
    if not text:
        raise ValueError(f"{name} is missing; fill in this column")
    return text


def amount_in(row: Row, name: str) -> int:
    """Returns the cost in the column `name` of a row. Raises ValueError if it is no valid cost."""
    text = field_in(row, name)
    if not (text.isascii() and text.isdigit()) or len(text) > len(str(COST_MAX)) or int(text) > COST_MAX:
        raise ValueError(f"{name} is {text!r}, not a whole number from 0 to {COST_MAX}")
    return int(text)
