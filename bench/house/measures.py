"""The measures of one package."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from bench.house.circles import circles_of, graph_of

SHORT_FILE: Final = 60
LONG_FUNCTION: Final = 50
IN_ROOMS: Final = frozenset((".css", ".html", ".js", ".lua", ".py", ".pyi"))
"""The files that `largest_folder` counts: code of all kinds but C, which the kernel keeps together in one folder."""
WORDS: Final = re.compile(r"\b(?:who|whoever|whom|nobody)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class House:
    """The measures of one package."""

    name: str
    files: int
    largest_folder: int
    """The number of files in the fullest folder, Lua and web pages included."""
    rooms_max: int
    """The number of packages side by side in the fullest folder."""
    beside_max: int
    """The number of modules and packages side by side in the fullest folder."""
    median_lines: float
    short_files: int
    """The number of files with fewer than 60 lines."""
    functions: int
    long_functions: int
    """The number of functions with more than 50 lines."""
    comment_share: float
    """The lines with a comment, in percent of all lines."""
    circles: int
    """The number of circles: sets of modules that import each other, or of files of C that call and include each
    other."""
    in_circles: int
    """The number of modules in circles."""
    words: int
    """The number of *who, whoever, whom, nobody* in code, comments and docstrings."""


def measured(package: Path) -> House:
    """Measures one package. Raises FileNotFoundError if it does not exist."""
    everything = sorted(package.rglob("*.py"))
    if not everything:
        raise FileNotFoundError(f"{package} holds no Python")
    files = [path for path in everything if path.name != "__init__.py"]
    texts = {path: path.read_text() for path in everything}
    lengths = [texts[path].count("\n") for path in files]
    functions = [length for text in texts.values() for length in function_lengths(text)]
    circles = circles_of(graph_of(package, texts))
    folders = {path.parent for path in everything}
    return House(
        name=package.name,
        files=len(files),
        largest_folder=max(files_by_folder(package).values()),
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


def files_by_folder(package: Path) -> Counter[Path]:
    """Returns the number of files in each folder of a package, `__init__.py` left out."""
    return Counter(path.parent for path in package.rglob("*") if path.suffix in IN_ROOMS and path.name != "__init__.py")


def modules_in(folder: Path) -> int:
    """Returns the number of modules side by side in a folder."""
    return sum(path.name != "__init__.py" for path in folder.glob("*.py"))


def packages_in(folder: Path) -> int:
    """Returns the number of packages side by side in a folder."""
    return sum((path / "__init__.py").exists() for path in folder.iterdir() if path.is_dir())


def function_lengths(text: str) -> Iterator[int]:
    """Returns the number of lines of every function, its docstring included."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield (node.end_lineno or node.lineno) - node.lineno + 1


def comment_lines(text: str) -> int:
    """Returns the number of lines with a comment, without directives to tools."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    directive = re.compile(r"#\s*(noqa|type: ignore|pragma|pyright)")
    return len(
        {token.start[0] for token in tokens if token.type == tokenize.COMMENT and not directive.match(token.string)}
    )
