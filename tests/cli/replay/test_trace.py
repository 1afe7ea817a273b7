"""Recordings are read as they are, and whatever is wrong with one is told with its file and line."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from reconverge.cli.replay.trace import Columns, InvalidTrace, RecordedRequest, read_arrivals, read_trace, without_gaps
from reconverge.simulation import SimulatedArrival

GOOD = "t_s,client,tokens\n0.5,ada,3\n2.5,bob,4\n"


def written(directory: Path, text: str | bytes, name: str = "trace.csv") -> Path:
    """A recording with that text."""
    path = directory / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_time_begins_with_the_first_request(tmp_path: Path) -> None:
    """Recordings need not start at zero."""
    requests = read_trace(written(tmp_path, GOOD), Columns("client", cost="tokens"))

    assert [RecordedRequest(0.0, "ada", 3, 0), RecordedRequest(2.0, "bob", 4, 0)] == requests


def test_without_columns_every_request_costs_one_and_all_share_a_key(tmp_path: Path) -> None:
    """`*` stands for one key."""
    requests = read_trace(written(tmp_path, GOOD), Columns("*"))

    assert {("all", 1, 0)} == {(one.key, one.cost, one.settle) for one in requests}


def test_a_recording_may_be_gzipped_and_out_of_order(tmp_path: Path) -> None:
    """The order is that of the times."""
    text = gzip.compress(b"t_s,client\n3,late\n1,early\n")

    requests = read_trace(written(tmp_path, text, "trace.csv.gz"), Columns("client"))

    assert ["early", "late"] == [one.key for one in requests]


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("x,ada,1", "t_s is 'x'"),
        ("nan,ada,1", "t_s is 'nan'"),
        ("inf,ada,1", "t_s is 'inf'"),
        (",ada,1", "t_s is missing"),
        ("1,,1", "client is missing"),
        ("1,ada", "tokens is missing"),
        ("1,ada,1,9", "more fields"),
        ("1,ada,1.5", "tokens is '1.5'"),
        ("1,ada,-1", "tokens is '-1'"),
        ("1,ada,9999999999999", "tokens is '9999999999999'"),
        ("1,ada,٣", "tokens is"),
        (f"1,{'k' * 300},1", "at most 256 bytes"),
    ],
)
def test_a_bad_row_is_told_with_file_and_line(tmp_path: Path, row: str, problem: str) -> None:
    """So that an editor can jump there."""
    path = written(tmp_path, f"{GOOD}{row}\n")

    with pytest.raises(InvalidTrace) as caught:
        read_trace(path, Columns("client", cost="tokens"))

    assert str(caught.value).startswith(f"{path}:4: ")
    assert problem in str(caught.value)


def test_a_missing_column_is_told_with_those_that_there_are(tmp_path: Path) -> None:
    """A typing error is seen at once."""
    with pytest.raises(InvalidTrace, match=r"trace\.csv:1: has no column 'user'; its columns: t_s, client, tokens"):
        read_trace(written(tmp_path, GOOD), Columns("user"))


@pytest.mark.parametrize(
    ("text", "name", "problem"),
    [
        ("", "a.csv", "has no column 't_s'"),
        ("t_s\n", "a.csv", "has no requests"),
        (b"\xff\xfe\x00", "a.csv", "not a text file in UTF-8"),
        (b"no gzip at all", "a.csv.gz", "cannot be read"),
        (gzip.compress(b"t_s\n" + b"1\n" * 1000, mtime=0)[:-10], "a.csv.gz", "cannot be read"),
    ],
)
def test_a_file_that_is_no_recording_is_told_by_name(
    tmp_path: Path, text: str | bytes, name: str, problem: str
) -> None:
    """The file may be anything instead."""
    path = written(tmp_path, text, name)

    with pytest.raises(InvalidTrace) as caught:
        read_trace(path, Columns())

    assert str(caught.value).startswith(str(path))
    assert problem in str(caught.value)


def test_a_file_that_is_not_there_and_a_directory_are_told(tmp_path: Path) -> None:
    """No traceback for a mistyped name."""
    with pytest.raises(InvalidTrace, match="there is no such file"):
        read_trace(tmp_path / "none.csv", Columns())
    with pytest.raises(InvalidTrace, match="cannot be read: Is a directory"):
        read_trace(tmp_path, Columns())


def test_idle_stretches_are_cut_down_and_nothing_else(tmp_path: Path) -> None:
    """Requests that are close together stay as far apart as they were."""
    times = [0.0, 1.0, 100.0, 101.5, 300.0]

    shortened = without_gaps([RecordedRequest(time, "ada", 1, 0) for time in times], 10.0)

    assert [0.0, 1.0, 11.0, 12.5, 22.5] == [one.t_s for one in shortened]


def test_arrivals_for_a_simulation_say_where_they_arrive(tmp_path: Path) -> None:
    """Key and cost are optional."""
    plain = written(tmp_path, "t_s,node\n0.5,1\n0.1,0\n")
    full = written(tmp_path, "t_s,node,key,cost\n0.5,1,ada,7\n", "full.csv")

    assert [SimulatedArrival(100_000_000, 0, "all", 1), SimulatedArrival(500_000_000, 1, "all", 1)] == read_arrivals(
        plain, 2
    )
    assert [SimulatedArrival(500_000_000, 1, "ada", 7)] == read_arrivals(full, 2)


@pytest.mark.parametrize(("row", "problem"), [("1,2", "node is 2, but the nodes are 0 to 1"), ("-1,0", "before")])
def test_arrivals_that_cannot_be_are_told_with_file_and_line(tmp_path: Path, row: str, problem: str) -> None:
    """A node that there is not, a moment before the start."""
    with pytest.raises(InvalidTrace, match=f"trace.csv:2: .*{problem}"):
        read_arrivals(written(tmp_path, f"t_s,node\n{row}\n"), 2)
