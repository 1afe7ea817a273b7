"""A vocabulary for tests of `simulate` and `tune`: runs them, and reads their output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from reconverge.cli import MISTAKE_STATUS
from tests.support.commands.checked import Said, say_here

PNG_BEGIN = b"\x89PNG\r\n\x1a\n"


def say(command: str, *options: str) -> Said:
    """Runs a command in this process, on a terminal of eighty columns, and without processes of its own."""
    return say_here(command, "--processes", "1", *options)


def told(command: str, *options: str) -> Any:
    """Runs a command with `--json`, and returns its data. Nothing else may be in its output."""
    said = say(command, *options, "--json")
    return json.loads(said.stdout)


def mistake(command: str, *options: str) -> str:
    """Returns the one sentence by which a command reports a mistake; it may print nothing else."""
    said = say(command, *options)
    sentence = said.stderr.removeprefix("reconverge: ")

    assert MISTAKE_STATUS == said.status
    assert "" == said.stdout
    assert said.stderr != sentence
    assert 1 == sentence.count("\n")
    return sentence.rstrip("\n")


def is_png(path: Path) -> bool:
    """Returns whether the data are a picture that can be decoded, and has more than one colour."""
    from matplotlib.image import imread  # noqa: PLC0415  # the import takes a while

    pixels = imread(path)
    return path.read_bytes().startswith(PNG_BEGIN) and pixels.ndim == 3 and pixels.min() < pixels.max()


def needs_other_files(page: str) -> list[str]:
    """Returns the marks of files that a page would have to load from elsewhere."""
    return [word for word in ("<script", "<link", "@import", "url(", 'src="http', 'src="/', "href=") if word in page]
