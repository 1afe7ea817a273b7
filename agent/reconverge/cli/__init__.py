"""The command `reconverge`."""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import NoReturn

from reconverge.errors import MissingExtra, ReconvergeError

NEEDS = ("typer", "rich", "click")
MISTAKE_STATUS = 2
INTERRUPTED_STATUS = 130
TERMINATED_STATUS = 143


def main() -> None:
    """Runs the command line. A user's mistake ends it with an error message and without a traceback."""
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminate)
    try:
        _run()
    except ReconvergeError as error:
        _end(error)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED_STATUS)


def _terminate(_number: int, _frame: FrameType | None) -> NoReturn:
    """Ends the command on SIGTERM as on Ctrl-C: after a clean-up, which also ends the processes that it has started."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one would interrupt the cleaning up
    sys.exit(TERMINATED_STATUS)


def _run() -> None:
    try:
        from reconverge.cli.app import app  # noqa: PLC0415  # what it needs may not be installed
        from reconverge.cli.completion import answer_shells  # noqa: PLC0415  # likewise
    except ModuleNotFoundError as error:
        if error.name not in NEEDS:
            raise
        raise MissingExtra("the command `reconverge`", error.name or "typer", "cli") from None
    answer_shells()
    app()


def _end(error: ReconvergeError) -> NoReturn:
    print(f"reconverge: {error}", file=sys.stderr)
    sys.exit(MISTAKE_STATUS)
