"""The command `reconverge console`: shows a whole fleet in a browser, from a process of its own."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from secrets import token_urlsafe
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from reconverge.agent import Agent
from reconverge.cli.contracts.recording import RecordingColumns, requests_in, span_of
from reconverge.cli.shared.asking import check_shared
from reconverge.cli.shared.options import HubOption, NamespaceOption
from reconverge.clock import SECOND_NS, SystemClock
from reconverge.errors import InvalidSetting, MissingExtra
from reconverge.hub.registry import redacted
from reconverge.integrations.customer_links import VARIABLE as CUSTOMER_SECRET
from reconverge.published.envelope import VARIABLE

if TYPE_CHECKING:
    from reconverge.integrations.console import Recording

TOKENS: Final = "RECONVERGE_CONSOLE_TOKENS"
"""The environment variable that lists the tokens, one a line, as "name: token, role"."""
TIMEOUT_S: Final = 3.0
"""The longest time, in seconds, that an answer of the hub may take: longer than for an agent, as no request waits for
it."""
END_S: Final = 5
"""Seconds for which the command waits for open responses when it ends; a live page ends within a second."""


def console(
    hub: HubOption,
    namespace: NamespaceOption = "default",
    host: Annotated[str, typer.Option(help="The address to listen at.", metavar="ADDRESS")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen at.", metavar="PORT", min=1, max=65535)] = 8200,
    read_only: Annotated[bool, typer.Option("--read-only", help="Change nothing, even if a token may.")] = False,
    recording: Annotated[
        Path | None,
        typer.Option(help="A CSV file, as of `contracts plan`, to predict changes of contracts.", metavar="TRACE"),
    ] = None,
    customer: Annotated[
        str | None, typer.Option(help="The column of the recording with the customer.", metavar="COLUMN")
    ] = None,
) -> None:
    """Show a whole fleet in a browser: nodes, limits, keys, why requests are refused, contracts and switches.

    Without RECONVERGE_CONSOLE_TOKENS, the command makes a token for this run and prints it. With
    RECONVERGE_SETTINGS_SECRET, the console can switch limits for the whole fleet, and shows its contracts. With
    RECONVERGE_CUSTOMER_SECRET as well, customers can open their own limits by signed links. Runs until it is
    interrupted.
    """
    check_shared(hub, "no fleet can be shown")
    make_console = _console_maker()
    tokens, once = tokens_as_said(os.environ.get(TOKENS, ""))
    agent = Agent(hub, namespace=namespace, exchange_timeout=TIMEOUT_S, switch="on", sigterm=False)
    agent.hide_from_consoles()
    secret = os.environ.get(VARIABLE) or None
    recorded = _recorded(recording, customer)
    app = make_console(
        agent,
        tokens=tokens,
        settings_secret=secret,
        read_only=read_only,
        recording=recorded,
        customer_secret=os.environ.get(CUSTOMER_SECRET) or None,
    )
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}/"
    typer.echo(f"the console of namespace {namespace} at {redacted(hub)}: {address}")
    if once:
        typer.echo(f"token: {once}")
    if secret is None:
        typer.echo(f"there are no switches and no contracts, as {VARIABLE} is not set", err=True)
    sys.stdout.flush()
    try:
        _serve(app, host, port)
    finally:
        agent.stop()


def _console_maker() -> Callable[..., Any]:
    """Imports and returns the function that makes a console. Raises MissingExtra if a package for it is missing."""
    try:
        import_module("uvicorn")
        from reconverge.integrations.console import console as make_console  # noqa: PLC0415  # it may not be installed
    except ModuleNotFoundError as error:
        raise MissingExtra("the command `reconverge console`", error.name or "uvicorn", "console") from None
    return make_console


def _serve(app: Any, host: str, port: int) -> None:
    import uvicorn  # noqa: PLC0415  # it may not be installed

    server = uvicorn.Server(
        uvicorn.Config(app, host=host, port=port, log_level="warning", timeout_graceful_shutdown=END_S)
    )
    app.state.pages.go_on_while(lambda: not server.should_exit)
    server.run()


def _recorded(path: Path | None, column: str | None) -> Recording | None:
    """Reads the recording of requests with which the console predicts changes of contracts; None without a `path`.

    If its times do not count from 1970, the recording is taken to end now. Raises InvalidTrace and InvalidSetting.
    """
    from reconverge.integrations.console.contracts import RECORDED_MAX, Recording  # noqa: PLC0415  # needs an extra

    if path is None or column is None:
        if path is not None or column is not None:
            raise InvalidSetting(
                "--recording", str(path), "needs --customer COLUMN, which needs --recording, too; give both or neither"
            )
        return None
    columns = RecordingColumns(column)
    span = span_of(path, columns)
    began_s = 0.0 if span.since_1970 else SystemClock.wall_ns() / SECOND_NS - span.last_s
    requests = list(islice(requests_in(path, columns, began_s), RECORDED_MAX + 1))
    return Recording(
        path.name,
        requests,
        columns.shape(settle_after_ns=0, ends_ns=round((began_s + span.last_s) * SECOND_NS)),
    )


def tokens_as_said(said: str) -> tuple[Sequence[str], str]:
    """Returns the lines of `said`, each "name: token, role", and an empty text.

    If `said` has no lines, makes a token, and returns one line with it, and the token in place of the empty text.
    """
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    if lines:
        return lines, ""
    once = token_urlsafe()
    return [f"console: {once}, write"], once


@dataclass(frozen=True, slots=True)
class OpenConsole:
    """The address of a console that is open while another command runs, and the token that opens it."""

    address: str
    token: str


def check_console(part: str) -> None:
    """Raises MissingExtra if a console's packages are not installed; the message names `part`, which needs them."""
    for package in ("starlette", "uvicorn"):
        if find_spec(package) is None:
            raise MissingExtra(part, package, "console")


@contextmanager
def console_beside(hub: str, namespace: str) -> Generator[OpenConsole]:
    """Runs a console of a namespace on a thread of this process, at a free local port, until the `with` block ends."""
    import uvicorn  # noqa: PLC0415  # it may not be installed

    from reconverge.integrations.console import console as make_console  # noqa: PLC0415  # likewise

    tokens, once = tokens_as_said("")
    agent = Agent(hub, namespace=namespace, exchange_timeout=TIMEOUT_S, switch="on", sigterm=False)
    agent.hide_from_consoles()
    app = make_console(agent, tokens=tokens)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off", timeout_graceful_shutdown=END_S))
    app.state.pages.go_on_while(lambda: not server.should_exit)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        thread = threading.Thread(target=server.run, args=([listening],), name="reconverge-console", daemon=True)
        thread.start()
        try:
            yield OpenConsole(f"http://127.0.0.1:{port}/", once)
        finally:
            server.should_exit = True
            thread.join(2 * END_S)
            agent.stop()
