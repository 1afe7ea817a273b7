"""Finds circles among the files of a package: modules of Python by imports, files of C by calls and includes."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_NO_CODE: Final = re.compile(r'/\*.*?\*/|"(?:\\.|[^"\\\n])*"|//[^\n]*', re.DOTALL)
_DEFINED: Final = re.compile(r"^(.*)\n(\w+)\([^;{}]*\)\n\{", re.MULTILINE)
"""A function as clang-format lays it out: a line with the type of the result, and below it the name, at the line's
beginning."""
_CALLED: Final = re.compile(r"\b(\w+)\s*\(")
_INCLUDED: Final = re.compile(r'^#include "(.*?)"', re.MULTILINE)


def imports_of(package: Path, texts: Mapping[Path, str]) -> dict[str, set[str]]:
    """Returns, by dotted name, each module's imports of its own package, with those within functions and for types."""
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


def calls_of(folder: Path) -> dict[str, set[str]]:
    """Returns, for each C file below a folder, its includes and the files that define the functions it calls.

    For a header, only its `#include` lines count, because it declares functions that other files define.
    """
    texts = {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*.[ch]"))}
    code = {name: _NO_CODE.sub(" ", text) for name, text in texts.items() if name.endswith(".c")}
    home = {
        function: name
        for name, text in code.items()
        for returned, function in _DEFINED.findall(text)
        if "static" not in returned and "INLINE" not in returned
    }
    found = {name: {each for each in _INCLUDED.findall(text) if each in texts} for name, text in texts.items()}
    for name, text in code.items():
        found[name] |= {home[called] for called in _CALLED.findall(text) if called in home} - {name}
    return found


def graph_of(package: Path, texts: Mapping[Path, str]) -> dict[str, set[str]]:
    """Returns the graph of both: modules of Python and files of C."""
    return imports_of(package, texts) | calls_of(package)


def circles_of(graph: Mapping[str, set[str]]) -> list[set[str]]:
    """Returns the sets of several nodes of which each reaches each, by Tarjan's algorithm without recursion."""
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
