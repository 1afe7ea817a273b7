"""The command line: `python -m bench.planted [FAULT ...]`. Plants faults, and measures which finders find each."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.planted.catalogue import FAULTS
from bench.planted.finders import FINDERS, SLOW
from bench.planted.page import Kept, KeptOutcome, keep, kept, page
from bench.planted.trying import NOT_TRIED, planted, try_both


def main(arguments: Sequence[str] | None = None) -> int:
    """Plants the faults that the command line names, and prints the table. Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.planted", description=__doc__)
    parser.add_argument("faults", nargs="*", metavar="FAULT", help="by name; all by default")
    parser.add_argument("--list", action="store_true", help="only print the faults, with what each makes wrong")
    parser.add_argument(
        "--finder", choices=FINDERS, action="append", help="by default all but those of chaos, which are slow"
    )
    parser.add_argument(
        "--seconds", type=float, default=300.0, help="of processor time, for each finder (default: %(default)s)"
    )
    parser.add_argument("--new", action="store_true", help="leave out what the results have already")
    parser.add_argument("--part", default="1/1", help="only each so many-th fault: 1/2 and 2/2 are all")
    parser.add_argument("--results", type=Path, metavar="DIR", help="where to keep JSON and table; the rest stays")
    options = parser.parse_args(arguments)
    names = [fault.name for fault in FAULTS]
    unknown = set(options.faults) - set(names)
    if unknown:
        parser.error(f"there is no fault {', '.join(sorted(unknown))}")
    if options.list:
        print("\n".join(f"{fault.name}: {fault.effect}" for fault in FAULTS))
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that finders end with it
    first, parts = map(int, options.part.split("/"))
    chosen = [fault for fault in FAULTS if fault.name in (options.faults or names)][first - 1 :: parts]
    finders = options.finder or [finder for finder in FINDERS if finder not in SLOW]
    found: Kept = {} if options.results is None else kept(options.results)
    for fault in chosen:
        with planted(fault) as root:
            for finder in finders:
                if options.new and finder in found.get(fault.name, {}):
                    continue
                outcome = try_both(finder, fault, root, options.seconds)
                if outcome.status == NOT_TRIED:
                    continue
                print(f"{fault.name}: {finder}: {outcome.status}, {outcome.seconds:.1f} s, {outcome.words}", flush=True)
                seconds = round(outcome.seconds, 1)
                found.setdefault(fault.name, {})[finder] = KeptOutcome(
                    status=outcome.status, seconds=seconds, within=options.seconds, words=outcome.words
                )
                if options.results is not None:
                    keep({fault.name: {finder: found[fault.name][finder]}}, options.results)
    print(page(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
