"""Names that more than one class has: a word that means one thing stands once."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Final

FORMATS: Final = ("contracts/format.py", "integrations/contracts/parts.py")
"""Descriptions of what is written outside: a class has the name of what it describes, as the published schema does."""


def repeated_classes(packages: Sequence[Path]) -> dict[str, list[str]]:
    """Where the classes are that share a name, by that name, over all packages together.

    A name with an underscore before it is one with it: readers see the same word. Classes within functions or other
    classes do not count.
    """
    found: dict[str, list[str]] = defaultdict(list)
    for package in packages:
        for path in sorted(path for path in package.rglob("*.py") if not str(path).endswith(FORMATS)):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef):
                    found[node.name.removeprefix("_")].append(f"{path}:{node.lineno}")
    return {name: places for name, places in sorted(found.items()) if len(places) > 1}
