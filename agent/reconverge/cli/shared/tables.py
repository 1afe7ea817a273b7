"""Tables of plain text, for commands that show the state of a fleet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import typer

Row: TypeAlias = tuple[str, ...]
"""A row of a table: one text for each column."""


def table_lines(heads: Row, rows: Iterable[Row]) -> list[str]:
    """Returns the lines of a table, the headings first. Characters that could move the cursor become question marks."""
    texts = [[plain(text) for text in row] for row in (heads, *rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    return ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in texts]


def tell_table(heads: Row, rows: Sequence[Row]) -> None:
    """Prints a table; prints nothing if it has no rows."""
    for line in table_lines(heads, rows) if rows else ():
        typer.echo(line)


def plain(text: str) -> str:
    """Returns a text with unprintable characters as question marks, as names come from other machines.

    Returns "-" for an empty text.
    """
    return "".join(letter if letter.isprintable() else "?" for letter in text) or "-"
