"""Toxiproxy, checked: no call blocks the loop, every call has an end, and each change is looked up afterwards."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import requests
import toxiproxy
import toxiproxy.api

from chaos.fleet.child import Child
from tests.support.servers import free_port, wait_until

ROOT: Final = Path(__file__).parents[2]
SERVER: Final = ROOT / ".tools" / "toxiproxy-server"
CALL_S: Final = 15.0
API: Final = toxiproxy.api.APIConsumer


class ProxyDisobeyed(Exception):
    """Raised when Toxiproxy did not obey an order, or not in time."""


@dataclass(frozen=True, slots=True)
class Toxic:
    """The effect of a wire on the data that pass through it."""

    kind: str
    stream: str
    """The direction; `upstream` is towards the server."""
    attributes: Mapping[str, int] = field(default_factory=dict)
    toxicity: float = 1.0
    """The share of connections that are affected; each is drawn when it is made."""

    @property
    def name(self) -> str:
        """Returns the toxic's name: a wire has no two toxics of the same kind in the same direction."""
        return f"{self.kind}_{self.stream}"


class _Session(requests.Session):
    """A session with a timeout and without proxies from the environment, both of which the client omits."""

    def __init__(self) -> None:
        super().__init__()
        self.trust_env = False

    def request(self, *args: Any, **kwargs: Any) -> requests.Response:
        return super().request(*args, **{"timeout": CALL_S, **kwargs})


class Toxiproxy:
    """A Toxiproxy server of this process. There is one at a time, as its client knows one address."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._port = free_port()
        self._client = toxiproxy.Toxiproxy()
        self._calls = asyncio.Lock()

    @staticmethod
    def binary() -> str | None:
        """Returns the server's path: built by `.ci/toxiproxy`, or installed."""
        named = os.environ.get("TOXIPROXY_SERVER") or str(SERVER)
        return named if Path(named).is_file() else shutil.which("toxiproxy-server")

    @staticmethod
    def missing() -> str:
        """Returns a sentence on what this machine lacks for Toxiproxy; empty if nothing."""
        return "" if Toxiproxy.binary() else "there is no Toxiproxy here; with Go installed, .ci/toxiproxy builds it"

    def __enter__(self) -> Self:
        binary = self.binary()
        assert binary is not None
        toxiproxy.api.requests = _Session()
        self._client.update_api_consumer("127.0.0.1", self._port)
        self._child = Child([binary, "-host", "127.0.0.1", "-port", str(self._port)], log=self._log)
        wait_until(self._client.running, "toxiproxy")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._child.kill()

    async def wire(self, name: str, port: int) -> Wire:
        """Returns a wire to a port of this machine."""
        await self.call(lambda: self._client.create(upstream=f"127.0.0.1:{port}", name=name))
        state = await self.state(name)
        if not state.get("enabled"):
            raise ProxyDisobeyed(f"the wire {name} was not made")
        return Wire(self, toxiproxy.Proxy(**state))

    async def call(self, what: Callable[[], Any]) -> Any:
        """Makes calls of the client on a thread, one at a time. Raises ProxyDisobeyed."""
        async with self._calls:
            try:
                return await asyncio.wait_for(asyncio.to_thread(what), CALL_S)
            except Exception as error:
                raise ProxyDisobeyed(f"{type(error).__name__}: {error}") from error

    async def state(self, name: str) -> dict[str, Any]:
        """Returns the state of a wire, as the server reports it."""
        answer = await self.call(lambda: API.get(f"/proxies/{name}"))
        return dict(answer.json())


class Wire:
    """A connection from a port to the server, which can be cut. Every change is looked up before it counts as made."""

    def __init__(self, proxies: Toxiproxy, proxy: Any) -> None:
        self._proxies = proxies
        self._proxy = proxy
        self._name: str = proxy.name
        self.port = int(str(proxy.listen).rpartition(":")[2])

    async def add(self, toxic: Toxic) -> None:
        """Adds a toxic to the wire."""
        await self._proxies.call(
            lambda: self._proxy.add_toxic(
                type=toxic.kind,
                stream=toxic.stream,
                name=toxic.name,
                attributes=dict(toxic.attributes),
                toxicity=toxic.toxicity,
            )
        )
        await self._demand(lambda state: toxic.name in _toxics(state), f"has no {toxic.name}")

    async def remove(self, toxic: Toxic) -> None:
        """Removes a toxic. Data that `latency` or `bandwidth` held are delivered; `timeout` closes connections."""
        await self._proxies.call(lambda: self._proxy.destroy_toxic(toxic.name))
        await self._demand(lambda state: toxic.name not in _toxics(state), f"still has {toxic.name}")

    async def disable(self) -> None:
        """Closes all connections, and refuses new ones."""
        await self._proxies.call(self._proxy.disable)
        await self._demand(lambda state: not state["enabled"], "is still enabled")

    async def enable(self) -> None:
        """Accepts new connections."""
        await self._proxies.call(self._proxy.enable)
        await self._demand(lambda state: bool(state["enabled"]), "is not enabled")

    async def lead_to(self, port: int) -> None:
        """Makes the wire lead to another port; open connections are closed. The client has no method for that."""
        upstream = f"127.0.0.1:{port}"
        await self._proxies.call(lambda: API.post(f"/proxies/{self._name}", json={"upstream": upstream}))
        await self._demand(lambda state: state["upstream"] == upstream and state["enabled"], "leads elsewhere")

    async def _demand(self, condition: Callable[[dict[str, Any]], bool], complaint: str) -> None:
        if not condition(await self._proxies.state(self._name)):
            raise ProxyDisobeyed(f"the wire {self._name} {complaint}")


def _toxics(state: dict[str, Any]) -> set[str]:
    return {toxic["name"] for toxic in state["toxics"]}
