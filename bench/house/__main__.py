"""Measures the layout and the language of the code: files, lengths, comments, circles, words, names of classes.

python -m bench.house [DIR ...] [--json | --words | --classes]

By default the two packages of this project. Counts production code alone: no tests, no `__init__.py` where files are
counted, and of C only circles. A circle is a set of modules that import each other, imports for types included, or a
set of files of C that call each other. Below the table stand the size of the whole project, tests and documents
included, and the circles of the packages that are not installed, if there are any.

With --words, prints each place of a word that the glossary bans from prose, in Python, C, Lua and the documents, and
the word to write instead; ends with status 1 if there are more than WORDS_MAX. In documents, inline code, the targets
of links and the tables of the glossary itself do not count. Prints docstrings that are no sentences, too, and public
methods that no class documents; ends with status 1 if there are any. With --classes, prints the names that more than
one class has, in all folders together; ends with status 1 if there are any.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from bench.house.circles import circles_of, graph_of
from bench.house.class_names import repeated_classes
from bench.house.docstrings import poor_docstrings, undocumented
from bench.house.measures import LONG_FUNCTION, SHORT_FILE, House, measured
from bench.house.whole import sizes
from bench.house.words import banned_words

PACKAGES: Final = (Path("agent/reconverge"), Path("sync/reconverge_sync"))
TOOLS: Final = (Path("bench"), Path("chaos"), Path("tests"))
"""The packages that are not installed."""
DOCSTRINGS: Final = (*PACKAGES, Path("bench"), Path("tests"))
DOCUMENTS: Final = tuple(map(Path, ("README.md", "CHANGELOG.md", "docs", "bench/README.md", "chaos/README.md")))
FACES: Final = frozenset(("Limits", "QuotaUsedUp", "RateLimitMiddleware", "TooManyRequests"))
"""The classes that each web framework has under the same name, so that users who change frameworks know them."""
WORDS_MAX: Final = 1
"""The most banned words in all files together: one stands in `~nobody`, a key that nodes of other versions know."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Makes the measurements that the command line names, and prints them as Markdown or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "packages", nargs="*", type=Path, metavar="DIR", help="folders of packages; with --words also files"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON object for each package")
    form.add_argument("--words", action="store_true", help="print the banned words, and fail if there are too many")
    form.add_argument("--classes", action="store_true", help="print what several classes are called, and fail")
    options = parser.parse_args(arguments)
    if options.classes:
        named = repeated_classes(options.packages or PACKAGES)
        repeated = {name: places for name, places in named.items() if name not in FACES}
        print(*(f"{name}: {', '.join(places)}" for name, places in repeated.items()), sep="\n")
        print(f"{len(repeated)} names of several classes")
        raise SystemExit(bool(repeated))
    if options.words:
        found = [each for place in options.packages or (*PACKAGES, *DOCUMENTS) for each in banned_words(place)]
        print(*found, f"{len(found)} banned words; at most {WORDS_MAX} may stand", sep="\n")
        poor = [each for place in options.packages or DOCSTRINGS for each in poor_docstrings(place)]
        poor += undocumented(options.packages or PACKAGES)
        print(*poor, f"{len(poor)} docstrings to write; none may be left", sep="\n")
        raise SystemExit(len(found) > WORDS_MAX or bool(poor))
    houses = [measured(package) for package in options.packages or PACKAGES]
    if options.json:
        for house in houses:
            print(json.dumps(asdict(house)))
        return
    print(f"| | {' | '.join(house.name for house in houses)} |\n{'|---' * (len(houses) + 1)}|")
    for what, cells in table(houses).items():
        print(f"| {what} | {' | '.join(cells)} |")
    if not options.packages:
        print(
            "\n| the whole | |\n|---|---|",
            *(f"| {what} | {size:,} |" for what, size in sizes(Path()).items()),
            sep="\n",
        )
    for package in () if options.packages else TOOLS:
        for circle in circles_of(graph_of(package, {path: path.read_text() for path in sorted(package.rglob("*.py"))})):
            print(f"\nA circle in {package}: {', '.join(sorted(circle))}")


def table(houses: Sequence[House]) -> dict[str, list[str]]:
    """Returns the rows of the table, by their title."""
    return {
        "files; largest folder": [f"{house.files}; {house.largest_folder}" for house in houses],
        "rooms on the fullest floor; files and rooms": [f"{house.rooms_max}; {house.beside_max}" for house in houses],
        "median file, lines": [f"{house.median_lines:g}" for house in houses],
        f"files under {SHORT_FILE} lines": [
            f"{house.short_files} ({100 * house.short_files / house.files:.0f} %)" for house in houses
        ],
        f"functions over {LONG_FUNCTION} lines": [
            f"{house.long_functions} ({100 * house.long_functions / house.functions:.1f} %)" for house in houses
        ],
        "comment lines": [f"{house.comment_share:.1f} %" for house in houses],
        "circles; modules in them": [f"{house.circles}; {house.in_circles}" for house in houses],
        "*who, whoever, whom, nobody*": [f"{house.words}" for house in houses],
    }


if __name__ == "__main__":
    main()
