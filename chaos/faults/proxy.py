"""Toxiproxy, held to its word: no call blocks the loop, every one has an end, and what it did is looked up."""

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
    """What a wire does to what passes through it."""

    kind: str
    stream: str
    """`upstream` is towards the server."""
    attributes: Mapping[str, int] = field(default_factory=dict)
    toxicity: float = 1.0
    """Of so many connections; each is drawn when it is made."""

    @property
    def name(self) -> str:
        """One wire has no two of the same kind in the same direction."""
        return f"{self.kind}_{self.stream}"


class _Session(requests.Session):
    """Has a timeout in any case, and takes no proxies from the environment: both are the client's omissions."""

    def __init__(self) -> None:
        super().__init__()
        self.trust_env = False

    def request(self, *args: Any, **kwargs: Any) -> requests.Response:
        return super().request(*args, **{"timeout": CALL_S, **kwargs})


class Toxiproxy:
    """A Toxiproxy server of our own. There is one at a time, as its client knows one address."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._port = free_port()
        self._client = toxiproxy.Toxiproxy()
        self._calls = asyncio.Lock()

    @staticmethod
    def binary() -> str | None:
        """The server, if it is here: built by `.ci/toxiproxy`, or installed."""
        named = os.environ.get("TOXIPROXY_SERVER") or str(SERVER)
        return named if Path(named).is_file() else shutil.which("toxiproxy-server")

    @staticmethod
    def missing() -> str:
        """What this machine lacks for it; empty if nothing."""
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
        """A wire to a port of this machine."""
        await self.call(lambda: self._client.create(upstream=f"127.0.0.1:{port}", name=name))
        state = await self.state(name)
        if not state.get("enabled"):
            raise ProxyDisobeyed(f"the wire {name} was not made")
        return Wire(self, toxiproxy.Proxy(**state))

    async def call(self, what: Callable[[], Any]) -> Any:
        """Have the client do something, on a thread, one thing at a time. Raises ProxyDisobeyed."""
        async with self._calls:
            try:
                return await asyncio.wait_for(asyncio.to_thread(what), CALL_S)
            except Exception as error:
                raise ProxyDisobeyed(f"{type(error).__name__}: {error}") from error

    async def state(self, name: str) -> dict[str, Any]:
        """How a wire is, as the server says."""
        answer = await self.call(lambda: API.get(f"/proxies/{name}"))
        return dict(answer.json())


class Wire:
    """What leads from a port to the server, or not. Every change is looked up before it is believed."""

    def __init__(self, proxies: Toxiproxy, proxy: Any) -> None:
        self._proxies = proxies
        self._proxy = proxy
        self._name: str = proxy.name
        self.port = int(str(proxy.listen).rpartition(":")[2])

    async def add(self, toxic: Toxic) -> None:
        """From now on the wire does that."""
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
        """The wire does that no more. What `latency` or `bandwidth` held is delivered; `timeout` closes connections."""
        await self._proxies.call(lambda: self._proxy.destroy_toxic(toxic.name))
        await self._demand(lambda state: toxic.name not in _toxics(state), f"still has {toxic.name}")

    async def disable(self) -> None:
        """Connections are closed, and new ones refused."""
        await self._proxies.call(self._proxy.disable)
        await self._demand(lambda state: not state["enabled"], "is still enabled")

    async def enable(self) -> None:
        """New connections are accepted."""
        await self._proxies.call(self._proxy.enable)
        await self._demand(lambda state: bool(state["enabled"]), "is not enabled")

    async def lead_to(self, port: int) -> None:
        """Lead to another port from now on; open connections are closed. The client has no word for it."""
        upstream = f"127.0.0.1:{port}"
        await self._proxies.call(lambda: API.post(f"/proxies/{self._name}", json={"upstream": upstream}))
        await self._demand(lambda state: state["upstream"] == upstream and state["enabled"], "leads elsewhere")

    async def _demand(self, condition: Callable[[dict[str, Any]], bool], complaint: str) -> None:
        if not condition(await self._proxies.state(self._name)):
            raise ProxyDisobeyed(f"the wire {self._name} {complaint}")


def _toxics(state: dict[str, Any]) -> set[str]:
    return {toxic["name"] for toxic in state["toxics"]}
