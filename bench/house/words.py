"""Finds the words that the glossary bans from prose, and names the words to write instead."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

GLOSSARY: Final = Path(__file__).parents[2] / "docs" / "GLOSSARY.md"
BANNED: Final = "## Banned from prose"
CODE: Final = (".py", ".c", ".h", ".lua")
PROSE: Final = (".md", ".json")
"""The extensions of documents; a dashboard has its texts in JSON."""
NO_PROSE: Final = re.compile(r"`[^`]*`|\]\([^)]*\)")
"""The parts of a line that are no prose: inline code, and the targets of links."""


def banned_words(place: Path) -> Iterator[str]:
    """Yields the banned words in a file, or in the files below a folder: `file:line: word: the word to write`.

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


def prose_of(line: str, *, glossary: bool) -> str:
    """Returns a line of a document without code and targets of links; "" for a row of the glossary's tables."""
    return "" if glossary and line.startswith("|") else NO_PROSE.sub("", line)


def replacements(glossary: str) -> dict[str, str]:
    """Returns, for each banned word, the word to write in its place, from the last table of the glossary.

    Raises ValueError if that table is missing.
    """
    rows = re.findall(r"^\| (?!banned|-)(.+?) \| (.+?) \|$", glossary.partition(BANNED)[2], re.MULTILINE)
    if not rows:
        raise ValueError(f"{GLOSSARY} has no table below {BANNED!r}")
    return {word: instead for words, instead in rows for word in words.split(", ")}
