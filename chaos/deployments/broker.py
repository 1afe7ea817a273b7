"""A broker of MQTT that stores nothing, and beside it a collector that adds up the sums that rivals publish."""

from __future__ import annotations

from chaos.deployments.deployment import RIVAL, USER, Guard
from chaos.names import MERGED, OURS, SECRET
from chaos.rivals.collector import Collector
from reconverge_sync.mqtt.session import VERSION
from tests.support.brokers import Mosquitto, guarded_lines
from tests.support.servers import accepts, wait_until


class Broker:
    """A broker of MQTT with the collector for rivals; see `Deployment`."""

    shards = 1

    def __init__(self, guard: Guard | None = None) -> None:
        self._guard = guard
        lines: list[str] = []
        if guard is not None:
            topics = "".join(f"topic readwrite {name}/rc/{VERSION}/#\n" for name in (OURS, MERGED))
            acl = f"user {USER}\n{topics}\nuser {RIVAL}\ntopic readwrite #\n"
            users = (USER, RIVAL)
            lines = guarded_lines(guard.directory, guard.certificates, users=users, password=SECRET, acl=acl)
        self._broker = Mosquitto(*lines)
        self._collector: Collector | None = None

    @property
    def port(self) -> int:
        return self._broker.port

    def start(self) -> None:
        self._broker.start()
        self._collector = Collector(self.rivals_url("127.0.0.1", self.port))

    def stop(self) -> None:
        if self._collector is not None:
            self._collector.stop()
        self._broker.stop()

    def url(self, host: str, port: int) -> str:
        return self._url(USER, host, port)

    def rivals_url(self, host: str, port: int) -> str:
        return self._url(RIVAL, host, port)

    @property
    def look_url(self) -> str:
        return self._url(USER, "127.0.0.1", self.port)

    def _url(self, user: str, host: str, port: int) -> str:
        if self._guard is None:
            return f"mqtt://{host}:{port}"
        return f"mqtts://{user}:{SECRET}@{host}:{port}?{self._guard.query()}"

    def reported(self, name: str) -> int:
        assert self._collector is not None
        return self._collector.reported(name)

    # ---------------------------------------------------------------- what faults do to it

    def kill(self) -> None:
        self._broker.kill()

    def spawn(self) -> None:
        self._broker.start()

    def await_answer(self) -> None:
        wait_until(lambda: accepts(self.port), "mosquitto")

    def pause(self) -> None:
        self._broker.pause()

    def resume(self) -> None:
        self._broker.resume()
