"""`reconverge demo` with phases of three seconds: `python -m tests.support.programs.short_demo [OPTION ...]`."""

from __future__ import annotations

import sys
from typing import Final

from reconverge.cli import demo
from reconverge.cli.app import app

SHORT_S: Final = 3.0

if __name__ == "__main__":
    demo.PHASE_S = SHORT_S  # type: ignore[misc]  # as tests do within their own process
    app(["demo", *sys.argv[1:]])
