"""Measures the size of the whole project: lines of code by kind, words of documents, records of decisions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

CODE: Final = frozenset((".c", ".css", ".h", ".html", ".js", ".lua", ".py", ".pyi"))
PRODUCT: Final = ("agent", "sync")
KINDS: Final = {"product": PRODUCT, "tools": ("bench", "chaos", "docs", "examples"), "tests": ("tests",)}
DOCUMENTED: Final = (".github", *PRODUCT, "bench", "chaos", "docs", "examples", "tests")
RECORDS: Final = Path("docs/decisions")


def sizes(root: Path) -> dict[str, int]:
    """Returns the rows of a table, by their title.

    All lines count, blank lines and comments included.
    """
    lines = {f"lines of code, {kind}": sum(map(_lines_in, _code(root, folders))) for kind, folders in KINDS.items()}
    documents = [*root.glob("*.md"), *(path for place in DOCUMENTED for path in (root / place).rglob("*.md"))]
    words = sum(len(path.read_text().split()) for path in documents)
    records = [path for path in (root / RECORDS).glob("*.md") if path.name != "README.md"]
    return {**lines, "words of documents": words, "records of decisions": len(records)}


def _code(root: Path, folders: tuple[str, ...]) -> Iterator[Path]:
    for folder in folders:
        for path in (root / folder).rglob("*"):
            if path.suffix in CODE:
                yield path


def _lines_in(path: Path) -> int:
    return len(path.read_text().splitlines())
