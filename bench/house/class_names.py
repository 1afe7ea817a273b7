"""Finds names that more than one class has: a word with one meaning stands for one class."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Final

FORMATS: Final = ("contracts/format.py", "integrations/contracts/parts.py")
"""The modules that describe published formats: a class has the name that the published schema uses."""


def repeated_classes(packages: Sequence[Path]) -> dict[str, list[str]]:
    """Returns the places of the classes that share a name, by that name, over all packages together.

    A name with an underscore before it is the same name: readers see the same word. Classes within functions or other
    classes do not count.
    """
    found: dict[str, list[str]] = defaultdict(list)
    for package in packages:
        for path in sorted(path for path in package.rglob("*.py") if not str(path).endswith(FORMATS)):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef):
                    found[node.name.removeprefix("_")].append(f"{path}:{node.lineno}")
    return {name: places for name, places in sorted(found.items()) if len(places) > 1}
