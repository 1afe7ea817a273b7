"""A wire that is cut is a black hole both ways, and delivers late what was under way."""

from __future__ import annotations

import socket
import socketserver
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from reconverge.cli.replay.link import Links
from reconverge.errors import InvalidSetting
from tests.support.waiting import eventually

SILENCE_S = 0.2
BOTH = frozenset({0})


class Echo(socketserver.ThreadingTCPServer):
    """Answers every line with itself, and remembers what it has heard."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Line)
        self.heard: list[bytes] = []

    @property
    def url(self) -> str:
        """Where a hub would be found here."""
        return f"redis://user:secret@127.0.0.1:{self.server_address[1]}/3"


class _Line(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        for line in self.rfile:
            assert isinstance(self.server, Echo)
            self.server.heard.append(line)
            self.wfile.write(line)


@pytest.fixture
def echo() -> Iterator[Echo]:
    """A server at the far end of the wires."""
    with Echo() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@contextmanager
def call(links: Links, node: int) -> Iterator[socket.socket]:
    """A connection from a node."""
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(urlsplit(links.url(node)).path)
        caller.settimeout(5.0)
        yield caller


def hears_nothing(caller: socket.socket) -> bool:
    """Whether nothing arrives for a moment."""
    caller.settimeout(SILENCE_S)
    try:
        return not caller.recv(100)
    except TimeoutError:
        return True
    finally:
        caller.settimeout(5.0)


def test_sockets_find_a_place_when_temporary_files_are_far_down(
    echo: Echo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path of a socket cannot be long; where temporary files go may be."""
    far_down = tmp_path / ("x" * 100)
    far_down.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(far_down))

    with Links(echo.url, 1) as links, call(links, 0) as caller:
        caller.sendall(b"hello\n")

        assert b"hello\n" == caller.recv(100)


def test_a_whole_wire_passes_everything_on_and_keeps_the_login(echo: Echo) -> None:
    """A node finds the same hub at its end: user, password and database."""
    with Links(echo.url, 2) as links, call(links, 0) as caller:
        caller.sendall(b"hello\n")

        assert b"hello\n" == caller.recv(100)
        assert links.url(0).startswith("redis+unix://user:secret@/")
        assert links.url(0).endswith("?db=3")


def test_nothing_passes_a_cut_wire_and_all_of_it_arrives_after_the_heal(echo: Echo) -> None:
    """Requests are held, not refused."""
    with Links(echo.url, 1) as links, call(links, 0) as caller:
        caller.sendall(b"before\n")
        assert b"before\n" == caller.recv(100)
        links.cut(BOTH)
        caller.sendall(b"during\n")
        assert hears_nothing(caller)
        assert [b"before\n"] == echo.heard
        links.heal(BOTH)

        assert b"during\n" == caller.recv(100)


def test_what_was_sent_arrives_even_if_its_sender_has_given_up(echo: Echo) -> None:
    """The zombie of every network: a write that lands after its connection is gone."""
    with Links(echo.url, 1) as links:
        with call(links, 0) as caller:
            caller.sendall(b"first\n")
            caller.recv(100)
            links.cut(BOTH)
            caller.sendall(b"zombie\n")
        assert [b"first\n"] == echo.heard
        links.heal(BOTH)

        eventually(lambda: echo.heard == [b"first\n", b"zombie\n"], "the late write arrived")


def test_calls_during_a_cut_get_no_answer_until_it_is_healed(echo: Echo) -> None:
    """Not even a refusal, by which a node could tell."""
    with Links(echo.url, 1) as links:
        links.cut(BOTH)
        with call(links, 0) as caller:
            caller.sendall(b"hello\n")
            assert hears_nothing(caller)
            links.heal(BOTH)

            assert b"hello\n" == caller.recv(100)


def test_the_other_nodes_notice_nothing(echo: Echo) -> None:
    """Every node has a wire of its own."""
    with Links(echo.url, 2) as links, call(links, 1) as caller:
        links.cut(BOTH)
        caller.sendall(b"hello\n")

        assert b"hello\n" == caller.recv(100)


def test_nothing_is_left_behind(echo: Echo) -> None:
    """No thread and no directory."""
    before = threading.active_count()
    with Links(echo.url, 2) as links, call(links, 0):
        directory = Path(urlsplit(links.url(0)).path).parent
        assert directory.exists()

    assert not directory.exists()
    eventually(lambda: threading.active_count() <= before, "all threads are gone")


@pytest.mark.parametrize("url", ["rediss://localhost", "mqtt://localhost"])
def test_a_hub_that_no_wire_can_lead_to_is_told(url: str) -> None:
    """TLS would rightly refuse a wire in between."""
    with pytest.raises(InvalidSetting, match="cut"):
        Links(url, 1)
