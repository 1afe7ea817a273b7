"""The stage on which a scenario runs: servers, the connections to them, and the nodes' processes."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Final, Protocol, Self

from chaos.bound.witness import Witness
from chaos.deployments.broker import Broker
from chaos.deployments.cluster import Cluster
from chaos.deployments.deployment import BROKER, CLUSTER, REDIS, SENTINEL, Deployment, Guard
from chaos.deployments.redis import Redis
from chaos.deployments.sentinel import Service
from chaos.faults.hostile_client import HostileClient
from chaos.faults.namespace import Namespace, address_of
from chaos.faults.nonsense import LyingProxy
from chaos.faults.proxy import Toxiproxy, Wire
from chaos.fleet.child import Child
from chaos.fleet.plan import Plan
from chaos.names import LIES, NETWORK, SECRET, WIRES, Nodes

ROOT: Final = Path(__file__).parent.parent
POLL_S: Final = 0.02
START_S: Final = 60.0
"""The longest time, in seconds, in which all nodes start on a slow machine."""
END_S: Final = 20.0
"""The longest time, in seconds, in which all nodes end: their last reports, and a prefork server's timeout."""
REPLICATION_S: Final = 10.0
HEIR_S: Final = 0.5
"""The seconds after which the member that inherits the ledger has heard of the remaining members."""


class Ground(Protocol):
    """The properties of a scenario that a stage needs."""

    @property
    def deployment(self) -> str:
        """Returns the kind of the hub."""
        ...

    @property
    def ground(self) -> str:
        """Returns the kind of the connections between nodes and server."""
        ...

    @property
    def nodes(self) -> int:
        """Returns the number of nodes."""
        ...

    @property
    def pure_nodes(self) -> tuple[int, ...]:
        """Returns the nodes whose kernel is the one in Python."""
        ...

    @property
    def guarded(self) -> bool:
        """Returns whether there is TLS, and users have few rights."""
        ...

    @property
    def shifted(self) -> bool:
        """Returns whether the server's clock can be shifted."""
        ...

    @property
    def replica(self) -> bool:
        """Returns whether the server has a replica."""
        ...

    @property
    def bound(self) -> bool:
        """Returns whether all steps are written down, to be compared with the model."""
        ...


class ChaosFailed(Exception):
    """Raised if a scenario could not be carried out; it is no judgement on the contestants."""


class NodeProcess:
    """One node's process, and the processes that replace it."""

    def __init__(self, plan: Plan, prefix: Sequence[str], environment: Mapping[str, str]) -> None:
        self._plan = plan
        self._prefix = list(prefix)
        self._environment = environment
        self._go: dict[str, object] | None = None
        self._child: Child | None = None
        self._ordered = 0
        """The number of orders that its latest process got."""

    def start(self) -> None:
        """Starts the process."""
        directory = Path(self._plan.directory)
        command = [sys.executable, "-m", "chaos.fleet"]
        log = directory / f"node-{self._plan.node}.log"
        self._child = Child(
            command, prefix=self._prefix, log=log, directory=ROOT, environment=self._environment, listens=True
        )
        self._ordered = 0
        self._say(self._plan.as_line())

    async def start_again(self) -> None:
        """Starts another process in its place, as soon as it is gone; the new one joins in at once."""
        assert self._child is not None
        await asyncio.to_thread(self._child.end, END_S)
        self.start()
        if self._go is not None:
            self._order("go", **self._go)

    @property
    def ready(self) -> bool:
        """Returns whether the node can begin. Raises ChaosFailed if it never will."""
        assert self._child is not None
        if not self._child.alive:
            raise ChaosFailed(f"a node ended with status {self._child.status}:\n{_tail(self._child.log)}")
        return self.born

    @property
    def born(self) -> bool:
        """Returns whether its latest process has begun."""
        assert self._child is not None
        return (Path(self._plan.directory) / f"ready-{self._plan.node}.{self._child.pid}").exists()

    @property
    def idle(self) -> bool:
        """Returns whether its latest process has carried out all orders."""
        return not self._ordered or self._written().count(b' over"}\n') >= self._ordered

    def go(self, start_ns: int) -> None:
        """Orders the node to begin at the common start."""
        self._go = {"start_ns": start_ns}
        self._order("go", **self._go)

    def tell(self, what: str, *, amount: float) -> None:
        """Orders the node to do something to itself."""
        self._ordered += 1
        self._order(what, amount=amount)

    def end(self) -> None:
        """Orders the node to send its last report, and to end."""
        self._order("end")

    def signal(self, number: signal.Signals) -> None:
        """Sends the process a signal."""
        assert self._child is not None
        self._child.signal(number)

    def kill(self) -> None:
        """Kills the process at once."""
        if self._child is not None:
            self._child.kill()

    @property
    def alive(self) -> bool:
        """Returns whether the process still runs."""
        return self._child is not None and self._child.alive

    def decisions(self) -> int:
        """Returns how many requests, of those for each contestant, this process has decided and recorded."""
        return self._written().count(b'{"e":"decide"') // len(self._plan.contestants)

    def _written(self) -> bytes:
        """Returns the records of its latest process."""
        assert self._child is not None
        history = Path(self._plan.directory) / f"node-{self._plan.node}.{self._child.pid}.jsonl"
        return history.read_bytes() if history.exists() else b""

    def _order(self, what: str, **facts: object) -> None:
        self._say(json.dumps({"do": what, **facts}))

    def _say(self, line: str) -> None:
        assert self._child is not None
        try:
            self._child.ear.write(line.encode() + b"\n")
            self._child.ear.flush()
        except BrokenPipeError:
            pass  # the process is gone, which others will notice


class Stage:
    """A context manager that ends all that it has started."""

    secret = SECRET

    def __init__(self, scenario: Ground, directory: Path) -> None:
        self._scenario = scenario
        self.deployment: Deployment
        self._directory = directory
        self._stack = AsyncExitStack()
        self._wires: list[Wire] = []
        self._liars: list[LyingProxy] = []
        self._network: Namespace | None = None
        self._replication: Wire | None = None
        self._replica: Redis | None = None
        self._hostile_client: HostileClient | None = None
        self.noted: dict[str, int] = {}
        """The counts that faults have noted."""
        self.nodes: list[NodeProcess] = []

    async def __aenter__(self) -> Self:
        try:
            await self._build()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    # ---------------------------------------------------------------- what faults take hold of

    @property
    def server(self) -> Redis:
        """Returns the deployment, if it is one Redis."""
        assert isinstance(self.deployment, Redis)
        return self.deployment

    @property
    def cluster(self) -> Cluster:
        """Returns the deployment, if it is a cluster."""
        assert isinstance(self.deployment, Cluster)
        return self.deployment

    @property
    def service(self) -> Service:
        """Returns the deployment, if Sentinels watch it."""
        assert isinstance(self.deployment, Service)
        return self.deployment

    @property
    def hostile_client(self) -> HostileClient:
        """Returns the hostile client of the broker."""
        assert self._hostile_client is not None
        return self._hostile_client

    @property
    def network(self) -> Namespace:
        """Returns the network in which packets can be dropped."""
        assert self._network is not None
        return self._network

    @property
    def replication(self) -> Wire:
        """Returns the wire from the server to its replica."""
        assert self._replication is not None
        return self._replication

    @property
    def deployment_kind(self) -> str:
        """Returns the kind of the deployment."""
        return self._scenario.deployment

    def numbers(self, who: Nodes) -> Sequence[int]:
        """Returns the numbers of these nodes."""
        return range(self._scenario.nodes) if who is None else who

    def wires_of(self, who: Nodes) -> list[Wire]:
        """Returns the wires of these nodes."""
        return [self._wires[number] for number in self.numbers(who)]

    def liars_of(self, who: Nodes) -> list[LyingProxy]:
        """Returns the proxies of these nodes that can rewrite the server's replies."""
        return [self._liars[number] for number in self.numbers(who)]

    def callback(self, what: Callable[[], object]) -> None:
        """Makes the stage call a function at its end."""
        self._stack.callback(what)

    async def tell_server(self, *words: str) -> object:
        """Makes the server carry out a command. Raises ChaosFailed."""
        try:
            answer: object = await asyncio.to_thread(self.server.admin.execute_command, *words)
        except Exception as error:
            raise ChaosFailed(f"the server does not do {words[0]}: {error}") from error
        return answer

    async def promote_replica(self) -> None:
        """Kills the server, and lets its replica take its place."""
        assert self._replica is not None
        self.server.kill()
        self.deployment = self._replica
        await self.tell_server("REPLICAOF", "NO", "ONE")
        for wire in self._wires:
            await wire.lead_to(self.server.port)

    # ---------------------------------------------------------------- nodes

    async def start_nodes(self, plans: Sequence[Plan]) -> None:
        """Starts all nodes, and waits until they are ready. Raises ChaosFailed."""
        prefix = [] if self._network is None else self._network.prefix
        for plan in plans:
            place = self._place_of(plan.node)
            url, rivals_url = self.deployment.url(*place), self.deployment.rivals_url(*place)
            environment = {"RECONVERGE_NO_EXTENSIONS": "1"} if plan.node in self._scenario.pure_nodes else {}
            placed = replace(plan, url=url, rivals_url=rivals_url, shards=self.deployment.shards)
            node = NodeProcess(placed, prefix, environment)
            self._stack.callback(node.kill)
            node.start()
            self.nodes.append(node)
        await self._eventually(lambda: all(node.ready for node in self.nodes), START_S, "the nodes do not get ready")

    async def await_the_late(self) -> None:
        """Waits for nodes that the machine delays. Raises ChaosFailed if that takes too long.

        These are processes that took another one's place and have not begun, and processes that have not yet carried
        out their orders.
        """
        await self._eventually(
            lambda: all((node.born and node.idle) or not node.alive for node in self.nodes),
            START_S,
            "a node has not begun, or not carried out its orders,",
        )

    async def end_nodes(self) -> None:
        """Makes all nodes send their last reports and end. Raises ChaosFailed."""
        for node in self.nodes:
            node.end()
            if self.deployment_kind == BROKER:
                # The member with the ledger hands it over; if all ended at once, they would hand it to each other.
                await self._eventually(lambda: not node.alive, END_S, "a node does not end")  # noqa: B023  # at once
                await asyncio.sleep(HEIR_S)
        await self._eventually(lambda: not any(node.alive for node in self.nodes), END_S, "a node does not end")

    # ---------------------------------------------------------------- inside

    async def _build(self) -> None:
        scenario = self._scenario
        prefix: list[str] = []
        if scenario.ground == NETWORK:
            self._network = self._stack.enter_context(Namespace())
            prefix = self._network.prefix
        # No other machine can reach a namespace.
        address = "127.0.0.1" if self._network is None else "0.0.0.0"  # noqa: S104
        guard = Guard() if scenario.guarded else None
        if guard is not None:
            self._stack.callback(guard.remove)
        witness = Witness(self._directory) if scenario.bound else None
        if scenario.deployment == REDIS:
            self.deployment = Redis(
                address=address, prefix=prefix, shifted=scenario.shifted, guard=guard, witness=witness
            )
        elif scenario.deployment == CLUSTER:
            self.deployment = Cluster(guard, witness)
        elif scenario.deployment == SENTINEL:
            self.deployment = Service(guard, witness)
        else:
            self.deployment = Broker(guard)
        self._stack.callback(self.deployment.stop)
        self.deployment.start()
        if scenario.deployment == BROKER:
            self._hostile_client = HostileClient(
                self.deployment.look_url, self.deployment.rivals_url("127.0.0.1", self.deployment.port)
            )
            self._stack.push_async_callback(self._hostile_client.leave)
        if scenario.ground == WIRES:
            proxies = self._stack.enter_context(Toxiproxy(self._directory / "toxiproxy.log"))
            self._wires = [await proxies.wire(f"node-{node}", self.deployment.port) for node in range(scenario.nodes)]
            if scenario.replica:
                self._replication = await proxies.wire("replication", self.server.port)
                await self._start_replica(self._replication.port)
        if scenario.ground == LIES:
            for node in range(scenario.nodes):
                liar = LyingProxy(self.deployment.port, Random(f"lies {node}"))
                await liar.start()
                self._stack.push_async_callback(liar.stop)
                self._liars.append(liar)

    async def _start_replica(self, port: int) -> None:
        self._replica = replica = Redis()
        self._stack.callback(replica.stop)
        replica.start()
        await asyncio.to_thread(replica.admin.execute_command, "REPLICAOF", "127.0.0.1", str(port))
        await self._eventually(
            lambda: replica.admin.info("replication").get("master_link_status") == "up",
            REPLICATION_S,
            "the replica does not follow",
        )

    def _place_of(self, node: int) -> tuple[str, int]:
        host, port = "127.0.0.1", self.deployment.port
        if self._network is not None:
            host = address_of(node)
        elif self._wires:
            port = self._wires[node].port
        elif self._liars:
            port = self._liars[node].port
        return host, port

    @staticmethod
    async def _eventually(condition: Callable[[], bool], seconds: float, complaint: str) -> None:
        deadline_s = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline_s:
                raise ChaosFailed(f"{complaint} within {seconds:g} s")
            await asyncio.sleep(POLL_S)


def _tail(log: Path, lines: int = 15) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
