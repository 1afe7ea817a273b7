"""Goal: the connections that wait in the kernel are counted, and nothing else is taken for them.

Method: real sockets that listen and accept nothing.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from reconverge.integrations.shedding import LoadSheddingMiddleware
from reconverge.shedding import LoopLag, Stack, WorkerShedder
from reconverge.shedding.worker import backlog as backlog_module
from reconverge.shedding.worker.backlog import Backlog
from tests.support.applications.asking import asgi_answer, hello, http_scope

pytestmark = pytest.mark.skipif(not hasattr(socket, "TCP_INFO"), reason="the kernel does not tell")


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def test_what_nobody_has_accepted_is_counted(listening: socket.socket) -> None:
    """Three clients have connected and one is accepted: two wait."""
    backlog, address = Backlog(), listening.getsockname()
    backlog.add(address[1])
    clients = [socket.create_connection(address) for _ in range(3)]
    three = backlog.waiting()
    clients.append(listening.accept()[0])

    assert [3, 2] == [three, backlog.waiting()]
    for client in clients:
        client.close()


def test_a_port_that_no_request_came_in_by_is_not_looked_at(listening: socket.socket) -> None:
    """A process may have listening sockets that it does not serve, and a backlog of those is for ever."""
    backlog, address = Backlog(), listening.getsockname()
    with socket.create_server(("127.0.0.1", 0)) as other, socket.create_connection(address):
        backlog.add(other.getsockname()[1])

        assert 0 == backlog.waiting()


def test_a_socket_that_is_closed_is_not_kept_open(listening: socket.socket) -> None:
    """After its end nothing is told, though its number means another thing by now, and its port is free."""
    backlog, address, number = Backlog(), listening.getsockname(), listening.fileno()
    backlog.add(address[1])
    assert 0 == backlog.waiting()
    listening.close()
    read, write = os.pipe()

    assert number in (read, write)
    assert None is backlog.waiting()
    for descriptor in (read, write):
        os.close(descriptor)
    socket.create_server(address).close()


def test_another_server_at_the_same_port_is_found(listening: socket.socket) -> None:
    """When it starts over, it searches anew."""
    backlog, address = Backlog(), listening.getsockname()
    backlog.add(address[1])
    backlog.waiting()
    listening.close()
    with socket.create_server(address), socket.create_connection(address):
        backlog.start_over()

        assert 1 == backlog.waiting()


def test_a_thread_that_reads_during_a_search_finds_the_sockets(
    listening: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that measures the loop searches first; the other one must not take its search for finished."""
    backlog = Backlog()
    backlog.add(listening.getsockname()[1])
    search, readings = backlog_module._listening_on, list[int | None]()

    def interrupted(ports: set[int]) -> tuple[int, ...]:
        if not readings:
            readings.append(-1)
            readings.append(backlog.waiting())
        return search(ports)

    monkeypatch.setattr(backlog_module, "_listening_on", interrupted)

    assert [0, 0] == [backlog.waiting(), readings[-1]]


async def test_the_ports_that_requests_come_in_by_are_measured(listening: socket.socket) -> None:
    """The middleware says at which port a server has heard a request; what waits there is pressure."""
    signal = LoopLag()
    app = LoadSheddingMiddleware(hello, Stack(WorkerShedder(signal)))
    address = listening.getsockname()

    for server in (address, ["/run/a.sock", None], None):
        await asgi_answer(app, http_scope("/") | {"server": server})
    with socket.create_connection(address):
        assert 1 == signal.backlog.waiting()
