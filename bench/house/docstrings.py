"""Finds docstrings that are no sentences, and public methods that no class documents."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

NO_SENTENCE: Final = ("See", "What", "Have", "Whatever")
"""Words that a docstring does not begin with: they name no subject, or point elsewhere."""


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
