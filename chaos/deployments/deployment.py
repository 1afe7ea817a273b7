"""Where nodes meet: one Redis, a service that Sentinels watch, a cluster, or a broker of MQTT."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import urlencode

from chaos.names import MERGED, OURS, SECRET
from tests.support.certificates import Certificates, make_certificates

REDIS, SENTINEL, CLUSTER, BROKER = "redis", "sentinel", "cluster", "mqtt"
DEPLOYMENTS: Final = (REDIS, SENTINEL, CLUSTER, BROKER)
ADDRESSES: Final = ("127.0.0.1", *(f"127.0.1.{number}" for number in range(1, 17)))
"""Where certificates say that a server is: the second kind is what nodes call it in a namespace."""
USER: Final = "limiter"
RIVAL: Final = "rival"
"""Rivals may do whatever they like, as it is their own affair what that would take."""


class Deployment(Protocol):
    """What a stage has in the middle. `guarded` ones speak TLS, and ours has a user who may do no more than it must."""

    @property
    def shards(self) -> int:
        """Into how many parts it divides the keys."""
        ...

    @property
    def port(self) -> int:
        """Where a wire leads."""
        ...

    def start(self) -> None:
        """Start it, empty, and wait until it answers."""
        ...

    def stop(self) -> None:
        """End it and remove what it has left."""
        ...

    def url(self, host: str, port: int) -> str:
        """Where a hub finds it, by a wire that ends there."""
        ...

    def rivals_url(self, host: str, port: int) -> str:
        """The same for rivals."""
        ...

    @property
    def look_url(self) -> str:
        """Where a hub finds it that no fault on the way concerns."""
        ...

    def reported(self, name: str) -> int:
        """Returns the sum that a rival's fleet has reported to it. Raises OSError, RedisError."""
        ...

    # What faults do to it.

    def kill(self) -> None:
        """End it as a crash does."""
        ...

    def spawn(self) -> None:
        """Start it again, empty."""
        ...

    def await_answer(self) -> None:
        """Wait until it answers."""
        ...

    def pause(self) -> None:
        """Let it hang: connections stay open, nothing is answered."""
        ...

    def resume(self) -> None:
        """Let it go on."""
        ...


class Guard:
    """Certificates, and users with a password, for deployments that are guarded."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="reconverge-chaos-"))
        self.certificates: Certificates = make_certificates(self.directory, addresses=ADDRESSES)

    def remove(self) -> None:
        """Leave nothing behind."""
        shutil.rmtree(self.directory, ignore_errors=True)

    def query(self, **more: str) -> str:
        """What a URL says about it behind its `?`."""
        return urlencode({"ssl_ca_certs": str(self.certificates.authority), **more})


def rights(documented: str) -> list[str]:
    """What a hub's class says that its user needs, for the fleets of a stage, as words of ACL SETUSER."""
    found = re.search(r"ACL SETUSER \S+ on >PASSWORD (.*?)\n\n", documented, re.DOTALL)
    assert found is not None
    return found[1].replace("~shop:*", " ".join(f"~{name}:*" for name in (OURS, MERGED))).split()


def redis_users(documented: str) -> tuple[str, ...]:
    """Options by which a redis-server has the users; it has them again when it was killed."""
    users: dict[str, Sequence[str]] = {USER: rights(documented), RIVAL: ("~*", "&*", "+@all")}
    options: list[str] = []
    for user, words in users.items():
        options += ["--user", user, "on", f">{SECRET}", *words]
    return tuple(options)
