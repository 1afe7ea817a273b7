"""Goal: `make bench` measures what it says, and says it so that it can be read.

Method: a short run of what needs no peers, as `python -m bench` does it, and its three kinds of output are read. How
long anything took is of no interest here.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench import speed
from bench.__main__ import kept, main
from bench.capacity import pieces
from bench.capacity.measured import DATA, DOCUMENT, GRID
from bench.capacity.page import tables, with_tables
from bench.child import Missing
from bench.decisions import felt
from bench.decisions.decisions import FLOOR
from bench.decisions.peers import peer
from bench.report.found import Part, Row, Spread, find
from bench.report.page import cell, page
from bench.report.targets import SPEED, TARGETS
from bench.web import middleware, under_servers
from bench.web.limited import BARE, CONSTANT, LIMITED, REFUSED
from bench.web.under_servers import H11, HTTPTOOLS

pytestmark = pytest.mark.slow  # benchmarks are run

ROOT = Path(__file__).parents[2]
PARTS = ("decisions", "felt", "memory", "threads", "blocks", "sync", "exchange", "asks")
RUN_S_MAX = 500.0
OURS = "reconverge, `allow`"
PURE = "reconverge in pure Python, `allow`"


@pytest.fixture(scope="module")
def results(compiled_kernel: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory with what a short run has left."""
    directory = tmp_path_factory.mktemp("bench")
    path = os.pathsep.join([str(ROOT / "agent"), str(ROOT / "sync")])
    command = [sys.executable, "-m", "bench", *PARTS, "--quick", "--results", str(directory)]
    ran = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )
    assert 0 == ran.returncode, ran.stderr
    assert (directory / "table.md").read_text().strip() == ran.stdout.strip()
    return directory


def rows_of(directory: Path) -> list[Row]:
    return [row for part in kept(directory) for row in part.rows]


def tables_of(text: str) -> list[list[list[str]]]:
    """The cells of all tables of a page."""
    tables: list[list[list[str]]] = [[]]
    for line in text.splitlines():
        if line.startswith("|"):
            tables[-1].append([one.strip() for one in line.strip("|").split("|")])
        elif tables[-1]:
            tables.append([])
    return [table for table in tables if table]


def test_every_table_is_well_formed(results: Path) -> None:
    """Each has a header, a rule and rows, all of as many cells, and each row says what it is about."""
    tables = tables_of((results / "table.md").read_text())

    assert len(tables) > len(PARTS)
    for header, rule, *rows in tables:
        assert {"---"} == set(rule)
        assert rows
        assert {len(header)} == {len(row) for row in (rule, *rows)}
        assert all(header)
        assert all(row[0] for row in rows)


def test_we_stand_beside_the_floor(results: Path) -> None:
    """The first table has the floor, and both twins of ours, with numbers in each cell."""
    rows = {row[0]: row[1:] for row in tables_of((results / "table.md").read_text())[0][2:]}

    assert {FLOOR, OURS, PURE} <= set(rows)
    assert all(re.match(r"\*\*[\d.]+\*\*.*, [\d.]+$", text) for name in (FLOOR, OURS, PURE) for text in rows[name])


def test_every_number_is_on_the_page(results: Path) -> None:
    """No row of the JSON is left out of the tables."""
    rows = rows_of(results)
    shown = {text for table in tables_of((results / "table.md").read_text()) for row in table for text in row}

    assert [] == [row for row in rows if cell(row) not in {"0", *shown}]
    assert set(PARTS) - {"blocks"} | {"longest block"} == {row.part for row in rows}


def test_ratios_are_to_what_was_measured_beside(results: Path) -> None:
    """Each ratio names its other side; the floor's own is one."""
    rows = rows_of(results)

    assert [] == [row for row in rows if (row.ratio is not None) != bool(row.beside)]
    assert {1.0} == {row.ratio.median for row in rows if row.what == FLOOR and row.ratio is not None}


def test_a_call_after_a_rest_stands_beside_what_a_dictionary_takes_after_one(results: Path) -> None:
    """Each way to be asked has a median and a p99 beside both floors, alone and beside a busy thread."""
    rows = [row for row in rows_of(results) if row.part == felt.PART]
    took = {(row.case[:-3], row.case[-3:], row.what): row.measured.median for row in rows if row.measured is not None}
    medians = {(case, what): us for (case, percentile, what), us in took.items() if percentile == "p50"}
    longest = {(case, what): us for (case, percentile, what), us in took.items() if percentile == "p99"}
    asked = {f"{name}: {what}" for name in (felt.MEMORY, felt.REDIS) for what in (felt.HOT, felt.NEW, felt.BEYOND)} | {
        f"{felt.REDIS}: {felt.FIRST}",
        f"{felt.REDIS}: {felt.RESTED}",
        *felt.FLOORS,
    }

    assert {(felt.case_of(*case, ""), what) for case in felt.CASES_QUICK for what in asked} == set(medians)
    assert set(medians) == set(longest)
    assert [] == [each for each, us in medians.items() if us > longest[each]]


def test_threads_lose_nothing_and_admit_nothing_too_much(results: Path) -> None:
    """The run itself has counted."""
    for what in ("lost", "admitted too much"):
        row = find(rows_of(results), "threads", "8 threads", f"{OURS}: {what}")

        assert row is not None
        assert Spread(0, 0, 0) == row.measured


def test_a_limit_stands_beside_the_bare_application_called_directly_and_served(tmp_path: Path) -> None:
    """It shows the time added to a request of ASGI, beside two constant fields; a server that is not there is named."""
    status = main(["middleware", "--quick", "--only", "ASGI", "--results", str(tmp_path)])
    rows = rows_of(tmp_path)
    of_servers = [row for row in rows if row.case.startswith("served")]
    directly = {row.what: row for row in rows if row.case == middleware.case_of("ASGI")}

    assert 0 == status
    assert set(middleware.FRAMEWORKS["ASGI"]) == set(directly)
    assert directly[BARE].ratio is not None
    assert {under_servers.case_of("ASGI", server) for server in (H11, HTTPTOOLS)} == {row.case for row in of_servers}
    assert all(row.missing or (row.ratio is not None and row.beside == BARE) for row in rows)
    assert all(row.missing for row in of_servers) or {CONSTANT, LIMITED, REFUSED} <= {row.what for row in of_servers}


def test_there_is_a_picture(results: Path) -> None:
    """With something in it."""
    assert (results / "chart.png").read_bytes().startswith(b"\x89PNG")
    assert (results / "chart.png").stat().st_size > 10_000


def test_what_is_felt_stands_beside_floor_and_aim(results: Path) -> None:
    """A line for each aim; a short run has all of decisions and exchanges, and says of the rest that it is missing."""
    header, _, *lines = tables_of("\n".join(speed.table(rows_of(results))))[0]
    found = {line[0]: dict(zip(header, line, strict=True)) for line in lines}
    missing = {what for what, line in found.items() if line["met"] == "not measured"}

    assert [target.what for target in SPEED] == [line[0] for line in lines]
    assert not set(SPEED) & set(TARGETS)
    assert {pieces.DEMO} == {what for what in missing if not what.startswith(("called directly", "served"))}
    assert all(line["takes"] for what, line in found.items() if what not in missing)
    assert all(
        line["floor of this run"]
        for what, line in found.items()
        if what.startswith(("one `allow`", "exchange: take and"))
    )


@pytest.mark.parametrize(("us", "met"), [(6.9, "yes"), (20.0, "in floors"), (21.0, "**no**")])
def test_an_aim_that_is_missed_because_all_is_slower_is_met_in_floors(us: float, met: str) -> None:
    """The aim for a new key was 7 µs where a dictionary took 1.7; beside one that takes 5 it is 20.6."""
    case = felt.case_of(3.0, 0, "p50")
    rows = [
        Row(felt.PART, case, what, measured=Spread(took, took, took))
        for what, took in ((f"{felt.REDIS}: {felt.NEW}", us), (felt.FLOOR_NEW, 5.0))
    ]

    lines = [line for line in speed.table(rows) if line.startswith("| one `allow` after 3 ms, a Redis, new keys: p50")]

    assert [met] == [line.split(" | ")[-1].removesuffix(" |") for line in lines]


def test_the_page_of_what_is_felt_is_drawn_from_what_was_kept() -> None:
    """No number stands in two places: the page is what the results give."""
    assert speed.PAGE.read_text() == speed.page(speed.read(speed.KEPT))


def test_what_was_felt_is_kept_and_read_as_it_was(tmp_path: Path) -> None:
    """Rows with numbers, and those that say why there are none."""
    rows = [Row("exchange", "case", "what", measured=Spread(1.0, 0.5, 2.0)), Row("exchange", "case", "x", missing="no")]
    part = Part(speed.NAME, {"commit": "0"}, rows)
    speed.write(part, tmp_path / "speed.json")

    assert part == speed.read(tmp_path / "speed.json")


def test_a_peer_that_is_not_there_is_said_to_be_missing() -> None:
    """On the page, in its place, with the reason."""
    with pytest.raises(Missing) as caught:
        peer("no_such_limiter.strategies")
    row = Row("decisions", "1 key, same strings, admitted", "no such limiter", missing=str(caught.value))
    about = {"commit": "", "date": "", "processors": 2, "model": "", "changed": False, "busy": False, "load": 0.0}
    text = page([Part("decisions", {**about, "python": "", "redis": "", "packages": {}}, [row])])

    assert "| no such limiter | missing: no_such_limiter is not installed |" in text
    assert "not measured" in text


def test_a_short_run_tells_what_a_fleet_costs(compiled_kernel: None, tmp_path: Path) -> None:
    """Tables, a JSON file with every point, and a picture; and what `reconverge tune` goes by is left alone."""
    before = DATA.read_bytes()
    ran = subprocess.run(
        [sys.executable, "-m", "bench.capacity.measured", "--quick", "--results", str(tmp_path)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "agent"), str(ROOT / "sync")])},
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )
    found = json.loads((tmp_path / "capacity.json").read_text())

    assert 0 == ran.returncode, ran.stderr
    assert tables(found).strip() == ran.stdout.strip()
    assert [len(GRID)] == [len(table) - 2 for table in tables_of(ran.stdout) if "nodes" in table[0]]
    assert all(point["spent"]["cells"] > 0 for point in found["points"])
    assert (tmp_path / "chart-of-capacity.png").read_bytes().startswith(b"\x89PNG")
    assert before == DATA.read_bytes()


def test_the_page_for_users_has_the_prices_that_were_measured_last() -> None:
    """The page of the sync interval holds the model that the kept results make, and not the points behind it."""
    found = json.loads((ROOT / "bench" / "results" / "capacity.json").read_text())
    page = DOCUMENT.read_text()

    assert with_tables(page, found) == page
    assert tables(found) not in page
