"""Tables of plain text, as the commands about a fleet print them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import typer

Row: TypeAlias = tuple[str, ...]
"""One text for each column."""


def table_lines(heads: Row, rows: Iterable[Row]) -> list[str]:
    """The lines of a table, the heads first. What could move the cursor is shown as a question mark."""
    texts = [[plain(text) for text in row] for row in (heads, *rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    return ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in texts]


def tell_table(heads: Row, rows: Sequence[Row]) -> None:
    """Print a table; nothing if it has no rows."""
    for line in table_lines(heads, rows) if rows else ():
        typer.echo(line)


def plain(text: str) -> str:
    """A text as a terminal may show it; names come from outside, and may hold what moves the cursor."""
    return "".join(letter if letter.isprintable() else "?" for letter in text) or "-"
