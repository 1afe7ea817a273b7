"""When, where and on what something was measured."""

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
"""Levels of caches that cores do not share."""
OWN_CACHE: Final = 1 << 20
LARGEST_CACHE: Final = 32 << 20
BUSY: Final = 0.5
"""With so many others to each processor, a machine is busy with other work."""


def circumstances() -> dict[str, Any]:
    """To be noted before anything is measured, as that makes the machine busy."""
    processors = os.cpu_count() or 1
    load = os.getloadavg()[0]
    return {
        "date": datetime.now(UTC).date().isoformat(),
        # The last one that changed what is measured; later ones may get other names before they are published.
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
    """When and where it was measured, for readers of the table."""
    return f"{moment(about)} {place(about)}"


def moment(about: dict[str, Any]) -> str:
    """The code that was measured, when, and how busy the machine was."""
    state = f", on a busy machine (load {about['load']:g} before)" if about["busy"] else ""
    return f"Commit `{about['commit']}`{' with changes' if about['changed'] else ''}, {about['date']}{state}."


def place(about: dict[str, Any]) -> str:
    """The machine, and the versions of all that is not ours."""
    packages = ", ".join(f"{name} {number}" for name, number in about["packages"].items() if number is not None)
    return (
        f"{about['processors']} processors ({about['model']}), Python {about['python']}, "
        f"redis-server {about['redis']}; {packages or 'no peers'}."
    )


def caches() -> tuple[int, int]:
    """How many bytes the largest cache of one core has, and the largest of all; as is usual where nothing tells."""
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
