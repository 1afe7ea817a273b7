"""How the code is laid out and written, in numbers: files, folders, lengths, comments, circles of imports, words.

    python -m bench.house [DIR ...] [--json | --words]

By default the two packages of this project. Counts production code alone: no tests, no C, no `__init__.py` where files
are counted. A circle is a set of modules that import each other, imports for types included.

With --words, prints where words stand that the glossary bans from prose, in Python, C, Lua and the documents, and what
to say instead; ends with status 1 if there are more than WORDS_MAX. In documents, inline code, the targets of links and
the tables of the glossary itself do not count. Prints docstrings that are no sentences, too, and public methods that no
class documents; ends with status 1 if there are any.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Final

PACKAGES: Final = (Path("agent/reconverge"), Path("sync/reconverge_sync"))
SHORT_FILE: Final = 60
LONG_FUNCTION: Final = 50
DOCSTRINGS: Final = (*PACKAGES, Path("bench"), Path("tests"))
NOT_YET: Final = tuple(f"agent/reconverge/{room}/" for room in ("contracts", "limiter", "published"))
"""Rooms whose docstrings are still to be written."""
NO_SENTENCE: Final = ("See", "What", "Have", "Whatever")
"""Words that a docstring does not begin with: they name no subject, or point elsewhere."""
DOCUMENTS: Final = tuple(map(Path, ("README.md", "CHANGELOG.md", "docs", "bench/README.md", "chaos/README.md")))
WORDS_MAX: Final = 1
"""Banned words that may stand in all of these together: `~nobody`, a key that nodes of other versions know."""
GLOSSARY: Final = Path(__file__).parents[1] / "docs" / "GLOSSARY.md"
BANNED: Final = "## Banned from prose"
CODE: Final = (".py", ".c", ".h", ".lua")
PROSE: Final = (".md", ".json")
"""Of documents; a dashboard has its texts in JSON."""
NO_PROSE: Final = re.compile(r"`[^`]*`|\]\([^)]*\)")
"""Inline code, and what a link leads to."""
WORDS: Final = re.compile(r"\b(?:who|whoever|whom|nobody)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class House:
    """One package, measured."""

    name: str
    files: int
    largest_folder: int
    """Files in the fullest folder."""
    rooms_max: int
    """Packages side by side in the fullest folder."""
    beside_max: int
    """Modules and packages side by side in the fullest folder."""
    median_lines: float
    short_files: int
    """Files of fewer than 60 lines."""
    functions: int
    long_functions: int
    """Functions of more than 50 lines."""
    comment_share: float
    """Lines with a comment, of all lines, in per cent."""
    circles: int
    """Sets of modules that import each other."""
    in_circles: int
    """Modules in them."""
    words: int
    """How often *who, whoever, whom, nobody* stand in code, comments and docstrings."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and print as Markdown or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "packages", nargs="*", type=Path, metavar="DIR", help="folders of packages; with --words also files"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON object for each package")
    form.add_argument("--words", action="store_true", help="print the banned words, and fail if there are too many")
    options = parser.parse_args(arguments)
    if options.words:
        found = [each for place in options.packages or (*PACKAGES, *DOCUMENTS) for each in banned_words(place)]
        print(*found, f"{len(found)} banned words; at most {WORDS_MAX} may stand", sep="\n")
        poor = [each for place in options.packages or DOCSTRINGS for each in poor_docstrings(place)]
        poor = [each for each in poor if not each.startswith(NOT_YET)]
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


def table(houses: Sequence[House]) -> dict[str, list[str]]:
    """The rows, by their title."""
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


def measured(package: Path) -> House:
    """One package. Raises FileNotFoundError when there is none."""
    everything = sorted(package.rglob("*.py"))
    if not everything:
        raise FileNotFoundError(f"{package} holds no Python")
    files = [path for path in everything if path.name != "__init__.py"]
    texts = {path: path.read_text() for path in everything}
    lengths = [texts[path].count("\n") for path in files]
    functions = [length for text in texts.values() for length in function_lengths(text)]
    circles = circles_of(imports_of(package, texts))
    folders = {path.parent for path in everything}
    return House(
        name=package.name,
        files=len(files),
        largest_folder=max(sum(path.parent == folder for path in files) for folder in folders),
        rooms_max=max(packages_in(folder) for folder in folders),
        beside_max=max(packages_in(folder) + modules_in(folder) for folder in folders),
        median_lines=median(lengths),
        short_files=sum(length < SHORT_FILE for length in lengths),
        functions=len(functions),
        long_functions=sum(length > LONG_FUNCTION for length in functions),
        comment_share=100 * sum(map(comment_lines, texts.values())) / sum(text.count("\n") for text in texts.values()),
        circles=len(circles),
        in_circles=sum(map(len, circles)),
        words=sum(len(WORDS.findall(text)) for text in texts.values()),
    )


def banned_words(place: Path) -> Iterator[str]:
    """Where the words stand that the glossary bans, in a file or below a folder: `file:line: word: what to say`.

    Parts of names count, too.
    """
    instead = replacements(GLOSSARY.read_text())
    pattern = re.compile(rf"(?<![a-z])(?:{'|'.join(instead)})(?![a-z])", re.IGNORECASE)
    camel = re.compile(r"(?<=[a-z])(?=[A-Z])")
    paths = [place] if place.is_file() else place.rglob("*")
    for path in sorted(path for path in paths if path.suffix in CODE + PROSE):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            text = prose_of(line, glossary=path.samefile(GLOSSARY)) if path.suffix in PROSE else line
            for word in pattern.findall(camel.sub("_", text)):
                yield f"{path}:{number}: {word}: say {instead[word.lower()]}"


def poor_docstrings(place: Path) -> Iterator[str]:
    """Yields the docstrings in a file or below a folder that begin with a word of `NO_SENTENCE`: `file:line: word`."""
    for path in sorted(path for path in ([place] if place.is_file() else place.rglob("*")) if path.suffix == ".py"):
        for node in ast.walk(ast.parse(path.read_text())):
            text = node.value.value if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) else None
            first = re.match(r"\w*", text) if isinstance(text, str) else None
            if first is not None and first[0] in NO_SENTENCE and isinstance(node, ast.Expr):
                yield f"{path}:{node.lineno}: {first[0]}: begin with a subject, or with an imperative verb"


def undocumented(packages: Sequence[Path]) -> Iterator[str]:
    """Yields public methods, properties aside, without a docstring in their own class, a base, or a class like it."""
    paths = sorted(path for package in packages for path in package.rglob("*.py"))
    bodies = [(path, each) for path in paths for each in ast.parse(path.read_text()).body]
    classes = [(path, each) for path, each in bodies if isinstance(each, ast.ClassDef)]
    methods = [
        (path, owner, each)
        for path, owner in classes
        for each in owner.body
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    described = {method.name for _, _, method in methods if ast.get_docstring(method)}
    for path, owner, method in methods:
        is_plain = method.name.startswith("_") or owner.name.startswith("_") or method.decorator_list
        is_alone = {ast.unparse(base) for base in owner.bases} <= {"Protocol"}
        if is_alone and not is_plain and method.name not in described:
            yield f"{path}:{method.lineno}: {owner.name}.{method.name}: no class describes it; write a docstring"


def prose_of(line: str, *, glossary: bool) -> str:
    """A line of a document without its code and the targets of its links; empty for a row of the glossary's tables."""
    return "" if glossary and line.startswith("|") else NO_PROSE.sub("", line)


def replacements(glossary: str) -> dict[str, str]:
    """Returns the word to say in place of each banned word, by the last table of the glossary.

    Raises ValueError if that table is not there.
    """
    rows = re.findall(r"^\| (?!banned|-)(.+?) \| (.+?) \|$", glossary.partition(BANNED)[2], re.MULTILINE)
    if not rows:
        raise ValueError(f"{GLOSSARY} has no table below {BANNED!r}")
    return {word: instead for words, instead in rows for word in words.split(", ")}


def modules_in(folder: Path) -> int:
    """How many modules lie side by side in a folder."""
    return sum(path.name != "__init__.py" for path in folder.glob("*.py"))


def packages_in(folder: Path) -> int:
    """How many packages do."""
    return sum((path / "__init__.py").exists() for path in folder.iterdir() if path.is_dir())


def function_lengths(text: str) -> Iterator[int]:
    """The lines of every function, its docstring included."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield (node.end_lineno or node.lineno) - node.lineno + 1


def comment_lines(text: str) -> int:
    """How many lines have a comment, directives to tools left out."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    directive = re.compile(r"#\s*(noqa|type: ignore|pragma|pyright)")
    return len(
        {token.start[0] for token in tokens if token.type == tokenize.COMMENT and not directive.match(token.string)}
    )


def imports_of(package: Path, texts: dict[Path, str]) -> dict[str, set[str]]:
    """Lists each module's imports of its own package, by dotted names.

    Those within functions and for types included.
    """
    root = package.parent
    names = {".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path for path in texts}
    found: dict[str, set[str]] = defaultdict(set)
    for name, path in names.items():
        for node in ast.walk(ast.parse(texts[path])):
            wanted: list[str] = []
            if isinstance(node, ast.Import):
                wanted = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    wanted.append(inner if inner in names else node.module)
            found[name] |= {each for each in wanted if each in names and each != name}
    return found


def circles_of(graph: dict[str, set[str]]) -> list[set[str]]:
    """The sets of more than one node of which each reaches each; Tarjan's algorithm, without recursion."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    circles: list[set[str]] = []
    for root in sorted(graph):
        if root in index:
            continue
        work = [(root, iter(sorted(graph[root])))]
        index[root] = low[root] = len(index)
        stack.append(root)
        while work:
            node, children = work[-1]
            child = next(children, None)
            if child is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    circle = set(stack[stack.index(node) :])
                    del stack[stack.index(node) :]
                    circles += [circle] if len(circle) > 1 else []
            elif child not in index:
                index[child] = low[child] = len(index)
                stack.append(child)
                work.append((child, iter(sorted(graph.get(child, ())))))
            elif child in stack:
                low[node] = min(low[node], index[child])
    return circles


if __name__ == "__main__":
    main()
