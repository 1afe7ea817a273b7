"""Names that more than one class has: a word that means one thing stands once."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path


def repeated_classes(packages: Sequence[Path]) -> dict[str, list[str]]:
    """Where the classes are that share a name, by that name, over all packages together.

    A name with an underscore before it is one with it: readers see the same word. Classes within functions or other
    classes do not count.
    """
    found: dict[str, list[str]] = defaultdict(list)
    for package in packages:
        for path in sorted(package.rglob("*.py")):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef):
                    found[node.name.removeprefix("_")].append(f"{path}:{node.lineno}")
    return {name: places for name, places in sorted(found.items()) if len(places) > 1}
