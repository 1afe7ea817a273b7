"""Starts real brokers of MQTT for tests: each on its own port, in its own directory, until the test ends."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from tests.support.certificates import Certificates
from tests.support.servers import Server, accepts, free_port


class Mosquitto(Server):
    """A mosquitto that listens on a loopback port, with further lines in its configuration."""

    def __init__(self, *lines: str, port: int | None = None) -> None:
        super().__init__()
        self.port = port or free_port()
        self._lines = lines or ("allow_anonymous true",)

    @property
    def url(self) -> str:
        return f"mqtt://127.0.0.1:{self.port}"

    def start(self) -> Self:
        config, said = self.directory / "mosquitto.conf", self.directory / "mosquitto.log"
        # As root it would become another user, who may not read the test's files.
        user = "user root" if os.geteuid() == 0 else ""
        lines = [user, "persistence false", "log_type error", f"listener {self.port} 127.0.0.1", *self._lines]
        config.write_text("\n".join([*lines, ""]))
        if self.run([mosquitto_binary(), "-c", str(config)], said, lambda: accepts(self.port)) is not None:
            raise RuntimeError(f"mosquitto ended at once: {said.read_text(errors='replace')}")
        return self


def guarded_lines(
    directory: Path, certificates: Certificates, *, users: Sequence[str], password: str, acl: str
) -> list[str]:
    """Returns lines for a broker that speaks TLS and knows these users, with the rights in `acl`."""
    known = directory / "users"
    (directory / "acl").write_text(acl)
    for number, user in enumerate(users):
        command = ["mosquitto_passwd", *([] if number else ["-c"]), "-b", str(known), user, password]
        subprocess.run(command, check=True, capture_output=True)
    known.chmod(0o600)
    return [
        f"cafile {certificates.authority}",
        f"certfile {certificates.server}",
        f"keyfile {certificates.server}",
        "allow_anonymous false",
        f"password_file {known}",
        f"acl_file {directory / 'acl'}",
    ]


def mosquitto_binary() -> str:
    """Returns the path of the system's mosquitto. Raises FileNotFoundError."""
    # Debian installs it where not every user's path leads.
    found = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
    if found is None:
        raise FileNotFoundError("no mosquitto: install Debian's package mosquitto")
    return found
