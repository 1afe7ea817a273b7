"""A network of its own, with nothing in it but a loopback, on which packets can be dropped."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from chaos.fleet.child import Child
from tests.support.servers import wait_until

COMMAND_S: Final = 10.0
RULES: Final = """
table inet chaos
delete table inet chaos
table inet chaos {{
    chain arriving {{
        type filter hook input priority 0; policy accept;
        {rules}
    }}
}}
"""


class Namespace:
    """A network namespace, which ends with the process that holds it.

    Each node reaches the server at an address of its own in 127.0.1.0/24. Packets are dropped where they arrive: their
    sender cannot tell that from a network that swallows them.
    """

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="reconverge-chaos-")
        self._user = [] if os.geteuid() == 0 else ["-U", "-r"]
        self._rules: dict[str, tuple[str, ...]] = {}
        self._holder: Child | None = None

    @staticmethod
    def missing() -> str:
        """Returns a sentence on what this machine lacks for a namespace; empty if nothing."""
        for program in ("unshare", "nsenter", "ip", "nft"):
            if shutil.which(program) is None:
                return f"there is no {program} here"
        try:
            with Namespace() as namespace:
                namespace.drop("trial", ["ip daddr 127.0.1.1 numgen random mod 100 < 1 drop"])
        except (OSError, subprocess.SubprocessError, TimeoutError) as error:
            return f"a network namespace cannot be had: {error}"
        return ""

    def __enter__(self) -> Self:
        log = Path(self._directory.name) / "holder.log"
        # cat, because it ends when its input ends, and does nothing until then.
        self._holder = Child(["cat"], prefix=["unshare", "-n", *self._user], log=log, listens=True)
        ours = Path("/proc/self/ns/net").readlink()
        theirs = Path(f"/proc/{self._holder.pid}/ns/net")
        wait_until(lambda: theirs.readlink() != ours, "a network namespace")
        self.run(["ip", "link", "set", "lo", "up"])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._holder is not None:
            self._holder.kill()
        self._directory.cleanup()

    @property
    def prefix(self) -> list[str]:
        """Returns the words to put before a command that is to run in the namespace."""
        assert self._holder is not None
        user = ["-U", "--preserve-credentials"] if self._user else []
        return ["nsenter", "-t", str(self._holder.pid), *user, "-n"]

    def run(self, command: Sequence[str], words: str = "") -> None:
        """Runs a command in the namespace. Raises CalledProcessError if it fails."""
        subprocess.run(
            [*self.prefix, *command], input=words, text=True, check=True, capture_output=True, timeout=COMMAND_S
        )

    def drop(self, name: str, rules: Sequence[str]) -> None:
        """Makes these rules drop packets until `pass_all` of the same name. All rules change at one moment."""
        self._rules[name] = tuple(rules)
        self._apply()

    def pass_all(self, name: str) -> None:
        """Removes the rules of this name."""
        self._rules.pop(name, None)
        self._apply()

    def _apply(self) -> None:
        rules = "\n        ".join(rule for rules in self._rules.values() for rule in rules)
        self.run(["nft", "-f", "-"], RULES.format(rules=rules))


def address_of(node: int) -> str:
    """Returns the address at which a node finds the server in a namespace."""
    return f"127.0.1.{node + 1}"


def cut_rules(nodes: Sequence[int], *, requests: bool = True, replies: bool = True) -> list[str]:
    """Returns the rules by which nothing passes between these nodes and the server, in one direction or in both."""
    rules = []
    for node in nodes:
        rules += [f"ip daddr {address_of(node)} drop"] if requests else []
        rules += [f"ip saddr {address_of(node)} drop"] if replies else []
    return rules


def loss_rules(percent: int) -> list[str]:
    """Returns the rules by which a share of all packets is lost, in either direction."""
    return [f"meta l4proto tcp numgen random mod 100 < {percent} drop"]
