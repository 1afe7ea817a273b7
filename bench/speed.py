"""Measures times that users feel: in requests, between other work and in the exchange, with the targets beside them.

python -m bench.speed           # measures, in ten minutes at most, and prints the table
python -m bench.speed --keep    # keeps it as well: bench/results/speed.json and bench/results/speed.md
python -m bench.speed --page    # measures nothing, and writes the page anew from the kept findings

These are rows of the parts `felt`, `middleware`, `sync` and `exchange` of `python -m bench`, each with the floor of its
own run. Other limiters are left out here, and so are rows without a target.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench.capacity import pieces, sync
from bench.child import ROOT
from bench.decisions import felt
from bench.report.found import Part, Row
from bench.report.machine import circumstances, in_a_sentence
from bench.report.page import cell, number
from bench.report.targets import SPEED, judged
from bench.web import middleware, under_servers
from bench.web.limited import PEERS, REFUSED

NAME: Final = "speed"
KEPT: Final = ROOT / "bench" / "results" / f"{NAME}.json"
PAGE: Final = KEPT.with_suffix(".md")
HEADER: Final = ("what", "aim", "takes", "floor of this run", "aim in floors", "in floors", "met")
UNDER_SERVERS: Final = {*PEERS, REFUSED}
MEASURES: Final[tuple[Callable[..., Iterator[Row]], ...]] = (
    partial(felt.measure, only="3 ms between calls, reconverge"),
    partial(middleware.directly, only=middleware.case_of("ASGI")),
    partial(under_servers.measure, without=UNDER_SERVERS),
    sync.measure,
    pieces.measure,
)
THEORY: Final = """\
# Speed where it is felt

A decision takes less than the increment of a dictionary. A request also pays for the code around the
decision, and other work between two decisions empties the caches.

- A *floor* is the least that something like it costs in the same run: a middleware that counts keys in a dictionary;
  under a server two constant response fields, or a dependency that does nothing; for one `allow` a dictionary; for the
  exchange [the benchmark](../capacity/pieces.py). A busy machine slows the floor too: an aim that is met
  *in floors* is missed only because this machine is slower.
- Two processes of one program differ by up to 12 µs for a request in ASGI and 35 in FastAPI.

Other measurements, and how they are made: [bench](../README.md).

"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Makes all measurements, and prints the table. Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.speed", description="What is felt, beside what was aimed at."
    )
    parser.add_argument("--quick", action="store_true", help="a short run, which shows that it works")
    parser.add_argument("--keep", action="store_true", help="keep what was measured, and write the page")
    parser.add_argument("--page", action="store_true", help="measure nothing: write the page from what is kept")
    options = parser.parse_args(arguments)
    part = read(KEPT) if options.page else Part(NAME, circumstances(), [])
    if not options.page:
        for row in measured(quick=options.quick):
            part.rows.append(row)
            if options.keep:  # each time, so that an interrupted run leaves its findings
                write(part, KEPT)
    if options.page or options.keep:
        PAGE.write_text(page(part))
    print("\n".join(table(part.rows)))
    return 0


def measured(*, quick: bool) -> Iterator[Row]:
    """Measures all rows, and prints the progress."""
    begun_s = time.monotonic()
    for measure in MEASURES:
        for row in measure(quick=quick):
            at_s = time.monotonic() - begun_s
            print(f"{at_s:4.0f} s {row.part}: {row.what}: {row.case}: {cell(row)}", file=sys.stderr, flush=True)
            yield row


def write(part: Part, path: Path) -> None:
    """Writes the findings that the table needs."""
    lines = ",\n".join(json.dumps(row.as_json(), ensure_ascii=False) for row in part.rows)
    path.write_text(f'{{"about": {json.dumps(part.about, ensure_ascii=False)},\n"rows": [\n{lines}\n]}}\n')


def read(path: Path) -> Part:
    """Reads the findings of an earlier run."""
    fields: dict[str, Any] = json.loads(path.read_text())
    return Part(NAME, fields["about"], [Row.from_json(row) for row in fields["rows"]])


def page(part: Part) -> str:
    """Returns the page for the documents."""
    about = f"`python -m bench.speed`. {in_a_sentence(part.about)}"
    return THEORY + "\n".join([about, "", *table(part.rows), ""])


def table(rows: Iterable[Row]) -> Iterator[str]:
    """Returns a table with one line for each target."""
    yield f"| {' | '.join(HEADER)} |"
    yield "|---" * len(HEADER) + "|"
    for target, value, floor in judged(rows, SPEED):
        least = "" if floor is None else number(floor)
        aim = f"≤ {target.bound:g} {target.unit}"
        aim_in_floors = "" if target.in_floors is None else f"≤ {number(target.in_floors)}"
        after = after_in_floors = ""
        met = "not measured"
        if value is not None:
            after, met = number(value), "yes" if target.met(value) else "**no**"
            if floor is not None and floor > 0:
                after_in_floors = number(value / floor)
                if not target.met(value) and target.in_floors is not None and value / floor <= target.in_floors:
                    met = "in floors"
        line = [target.what, aim, after, least, aim_in_floors, after_in_floors, met]
        yield f"| {' | '.join(line)} |"


if __name__ == "__main__":
    sys.exit(main())
