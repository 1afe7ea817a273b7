"""Records the date, the code and the machine of a measurement."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from bench.child import ROOT
from reconverge_sync.embedded.supervisor import find_redis_server

PACKAGES: Final = (
    "aiolimiter",
    "fastapi",
    "flask-limiter",
    "hiredis",
    "limits",
    "pyrate-limiter",
    "redis",
    "rust-py-rate-limit",
    "slowapi",
    "throttled-py",
    "token-bucket",
)
MEASURED: Final = ("agent", "sync")
CACHES: Final = Path("/sys/devices/system/cpu/cpu0/cache")
CORES_OWN: Final = ("1", "2")
"""The levels of caches that each core has for itself."""
OWN_CACHE: Final = 1 << 20
LARGEST_CACHE: Final = 32 << 20
BUSY: Final = 0.5
"""A machine is busy if it has this many running processes of others, or more, for each processor."""


def circumstances() -> dict[str, Any]:
    """Returns the circumstances of a measurement; to be called before it, as it makes the machine busy."""
    processors = os.cpu_count() or 1
    load = os.getloadavg()[0]
    return {
        "date": datetime.now(UTC).date().isoformat(),
        # The last commit that changed the measured code; later ones may get other names before they are published.
        "commit": _said_by("git", "log", "-1", "--format=%h", "--abbrev=12", "--", *MEASURED) or "unknown",
        "changed": bool(_said_by("git", "status", "--porcelain", "--", *MEASURED)),
        "processors": processors,
        "model": _model(),
        "load": round(load, 1),
        "busy": load > BUSY * processors,
        "python": platform.python_version(),
        "redis": _said_by(find_redis_server(), "--version").partition(" v=")[2].partition(" ")[0],
        "packages": {name: _version(name) for name in PACKAGES},
    }


def in_a_sentence(about: dict[str, Any]) -> str:
    """Returns a sentence on the date and the place of a measurement, for readers of the table."""
    return f"{moment(about)} {place(about)}"


def moment(about: dict[str, Any]) -> str:
    """Returns the commit of the measured code, the date, and the load of the machine."""
    state = f", on a busy machine (load {about['load']:g} before)" if about["busy"] else ""
    return f"Commit `{about['commit']}`{' with changes' if about['changed'] else ''}, {about['date']}{state}."


def place(about: dict[str, Any]) -> str:
    """Returns the name of the machine, and the versions of all software that is not part of this project."""
    packages = ", ".join(f"{name} {number}" for name, number in about["packages"].items() if number is not None)
    return (
        f"{about['processors']} processors ({about['model']}), Python {about['python']}, "
        f"redis-server {about['redis']}; {packages or 'no peers'}."
    )


def caches() -> tuple[int, int]:
    """Returns the bytes of one core's largest cache, and of the largest of all; usual values if unknown."""
    sizes = [OWN_CACHE, LARGEST_CACHE]
    own = 0
    for each in sorted(CACHES.glob("index*")):
        try:
            size = int((each / "size").read_text().strip().removesuffix("K")) * 1024
            own = max(own, size if (each / "level").read_text().strip() in CORES_OWN else 0)
        except (OSError, ValueError):
            continue
        sizes.append(size)
    return own or OWN_CACHE, max(sizes)


def _model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _said_by(*command: str) -> str:
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
