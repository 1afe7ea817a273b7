"""The command `reconverge`."""

from __future__ import annotations

import sys
from typing import NoReturn

from reconverge.errors import MissingExtra, ReconvergeError

NEEDS = ("typer", "rich", "click")
MISTAKE_STATUS = 2
INTERRUPTED_STATUS = 130


def main() -> None:
    """Run the command line; a mistake of the user ends it with a sentence, not with a traceback."""
    try:
        _run()
    except ReconvergeError as error:
        _end(error)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED_STATUS)


def _run() -> None:
    try:
        from reconverge.cli.app import app  # noqa: PLC0415  # what it needs may not be installed
    except ModuleNotFoundError as error:
        if error.name not in NEEDS:
            raise
        raise MissingExtra("the command `reconverge`", error.name or "typer", "cli") from None
    app()


def _end(error: ReconvergeError) -> NoReturn:
    print(f"reconverge: {error}", file=sys.stderr)
    sys.exit(MISTAKE_STATUS)
