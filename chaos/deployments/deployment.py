"""The interface of a deployment: one Redis, a service that Sentinels watch, a cluster, or a broker of MQTT."""

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
"""The addresses that certificates name: in a namespace, nodes use the second kind."""
USER: Final = "limiter"
RIVAL: Final = "rival"
"""The user of the rivals, with all rights: the rights that a rival needs are not tested."""


class Deployment(Protocol):
    """The hub of a stage. A `guarded` one speaks TLS, and our user has only the rights that a hub needs."""

    @property
    def shards(self) -> int:
        """Returns the number of shards into which the deployment divides the keys."""
        ...

    @property
    def port(self) -> int:
        """Returns the port to which a wire leads."""
        ...

    def start(self) -> None:
        """Starts the deployment, empty, and waits until it answers."""
        ...

    def stop(self) -> None:
        """Ends the deployment, and removes its files."""
        ...

    def url(self, host: str, port: int) -> str:
        """Returns the URL at which a hub finds the deployment, by a wire that ends at `host` and `port`."""
        ...

    def rivals_url(self, host: str, port: int) -> str:
        """Returns the URL for rivals, by a wire that ends at `host` and `port`."""
        ...

    @property
    def look_url(self) -> str:
        """Returns a URL at which the deployment can be reached in spite of all faults on the way."""
        ...

    def reported(self, name: str) -> int:
        """Returns the sum that a rival's fleet has reported. Raises OSError, RedisError."""
        ...

    # The methods that faults call.

    def kill(self) -> None:
        """Ends the deployment as a crash does."""
        ...

    def spawn(self) -> None:
        """Starts the deployment again, empty."""
        ...

    def await_answer(self) -> None:
        """Waits until the deployment answers."""
        ...

    def pause(self) -> None:
        """Makes the deployment hang: connections stay open, but it answers nothing."""
        ...

    def resume(self) -> None:
        """Makes the deployment go on."""
        ...


class Guard:
    """Certificates, and users with a password, for deployments that are guarded."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="reconverge-chaos-"))
        self.certificates: Certificates = make_certificates(self.directory, addresses=ADDRESSES)

    def remove(self) -> None:
        """Removes the directory of the certificates."""
        shutil.rmtree(self.directory, ignore_errors=True)

    def query(self, **more: str) -> str:
        """Returns the part of a URL behind its `?`."""
        return urlencode({"ssl_ca_certs": str(self.certificates.authority), **more})


def rights(documented: str) -> list[str]:
    """Returns a user's rights as words of ACL SETUSER, from the docstring of a hub's class, for a stage's fleets."""
    found = re.search(r"ACL SETUSER \S+ on >PASSWORD (.*?)\n\n", documented, re.DOTALL)
    assert found is not None
    return found[1].replace("~shop:*", " ".join(f"~{name}:*" for name in (OURS, MERGED))).split()


def redis_users(documented: str) -> tuple[str, ...]:
    """Returns the options that give a redis-server the users, also after it was killed and started again."""
    users: dict[str, Sequence[str]] = {USER: rights(documented), RIVAL: ("~*", "&*", "+@all")}
    options: list[str] = []
    for user, words in users.items():
        options += ["--user", user, "on", f">{SECRET}", *words]
    return tuple(options)
