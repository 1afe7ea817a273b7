"""The cost of the console: how soon a page is there, and an agent's time for being shown.

    python -m bench.console [--quick]

Prints tables. Two consoles run beside each other: one of a fleet of 200 nodes with
10,000 keys, whose snapshots a program leaves at the hub as nodes would, and an idle one without nodes. Chromium opens
their pages by turns; what that takes of a processor in the console's process is printed, too, as a busy machine changes
it least. The agent has 10,000 keys and is asked now and then; its process time is read while a console is open and
while none is, by turns.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from statistics import fmean, median
from typing import Any, Final, NamedTuple, TypeVar

from bench.servers import free_port, redis_on_loopback, wait_for
from reconverge import Agent
from reconverge.agent.snapshots.snapshot import Denial, KeyUse, NodeSnapshot, encoded
from reconverge.cli.console import TOKENS
from reconverge.hub.board import SNAPSHOT_S, WATCH_S
from reconverge.hub.port import Hub, SnapshotBoard

T = TypeVar("T")
NODES: Final = 200
KEYS: Final = 10_000
LIMITS: Final = 10
TOKEN: Final = "a-token-of-the-benchmark"  # noqa: S105  # a token of a console that runs for a minute
BUSY, IDLE = "busy", "idle"
PLACES: Final = {"nodes": "#rows-nodes", "limits": "#rows-limits", "keys": "#rows-keys"}
ASKED_PER_S: Final = 100
"""The requests per second that the agent decides meanwhile."""
SETTLE_S: Final = 3.0
"""The pause after a console was opened or closed, before the agent is measured: the agent checks once in a second."""


def main() -> None:
    """Makes all measurements, and prints them as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few turns, which show that it works")
    parser.add_argument("--role", choices=("agent", "fleet"), help=argparse.SUPPRESS)
    parser.add_argument("--hub", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role is not None:
        (be_an_agent if options.role == "agent" else be_a_fleet)(options.hub)
        return
    with redis_on_loopback() as port:
        hub = f"redis://127.0.0.1:{port}/0"
        agent_table(hub, turns=1 if options.quick else 5, seconds=3.0 if options.quick else 15.0)
        print()
        page_table(hub, turns=3 if options.quick else 15)


# ---------------------------------------------------------------- pages


def page_table(hub: str, *, turns: int) -> None:
    """Measures when the pages of a busy console are there, beside those of an idle one.

    Needs Chromium and Playwright.
    """
    from playwright.sync_api import sync_playwright  # noqa: PLC0415  # the other table needs none

    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("there is no Chromium; install Debian's package chromium")
    with role("fleet", hub), console(hub, BUSY) as busy, console(hub, IDLE) as idle, sync_playwright() as playwright:
        until_seen(busy.address, NODES)
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        context = browser.new_context(extra_http_headers={"authorization": f"Bearer {TOKEN}"})
        print("| page | idle (ms) | 200 nodes, 10,000 keys (ms) | more (ms) | of these in the console's process (ms) |")
        print("|---" * 5 + "|")
        for name, rows in PLACES.items():
            took: dict[str, list[float]] = {BUSY: [], IDLE: []}
            spent: dict[str, list[float]] = {BUSY: [], IDLE: []}
            for turn in range(turns + 1):
                for each in (busy, idle) if turn % 2 else (idle, busy):
                    before_ms = each.spent_ms()
                    ms = opened_ms(context, f"{each.address}#{name}", f"{rows} tr")
                    if turn:  # the first opening fills caches
                        took[each.namespace].append(ms)
                        spent[each.namespace].append(each.spent_ms() - before_ms)
            fast, slow = median(took[IDLE]), median(took[BUSY])
            more = median(one - other for one, other in zip(took[BUSY], took[IDLE], strict=True))
            own = fmean(spent[BUSY]) - fmean(spent[IDLE])
            print(f"| {name} | {fast:.0f} | {slow:.0f} | {more:.0f} | {own:.0f} |", flush=True)
        browser.close()


def opened_ms(context: Any, address: str, rows: str) -> float:
    """Returns the milliseconds from the request for a page until its table is there."""
    page = context.new_page()
    began_ns = time.monotonic_ns()
    page.goto(address, wait_until="commit")
    page.wait_for_selector(rows)
    took_ns = time.monotonic_ns() - began_ns
    page.close()
    return took_ns / 1e6


class Console(NamedTuple):
    """A `reconverge console` in a process of its own."""

    namespace: str
    address: str
    pid: int

    def spent_ms(self) -> float:
        """Returns the CPU time of the console's process so far, in milliseconds; see proc(5)."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return 1000 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def console(hub: str, namespace: str) -> Iterator[Console]:
    """Runs `reconverge console` for a namespace."""
    port = free_port()
    command = ["reconverge", "console", "--hub", hub, "--namespace", namespace, "--port", str(port)]
    with running(*command, variables={TOKENS: f"bench: {TOKEN}, read"}) as process:
        wait_for(port)
        yield Console(namespace, f"http://127.0.0.1:{port}/", process.pid)


def until_seen(address: str, nodes: int) -> None:
    """Waits until a console shows `nodes` nodes."""
    port = int(address.rstrip("/").rpartition(":")[2])
    until_s = time.monotonic() + 60.0
    while time.monotonic() < until_s:
        connection = HTTPConnection("127.0.0.1", port, timeout=10.0)
        connection.request("GET", "/state", headers={"authorization": f"Bearer {TOKEN}"})
        if len(json.loads(connection.getresponse().read())["nodes"]) >= nodes:
            return
        time.sleep(0.5)
    sys.exit(f"the console does not show {nodes} nodes")


def be_a_fleet(hub: str) -> None:
    """Leaves the snapshots of 200 nodes at the hub once in a second, until the standard input ends."""
    keys = [f"customer-{number:05}" for number in range(KEYS)]
    made = [simulated_node(number, keys) for number in range(NODES)]
    agent = Agent(hub, namespace=BUSY, exchange_timeout=30.0)
    agent.hide_from_consoles()

    async def leave(board: SnapshotBoard, second: int) -> None:
        for number, node in enumerate(made):
            limits = tuple(replace(each, admitted=each.admitted + second * number) for each in node.limits)
            payload = encoded(replace(node, at=time.time(), limits=limits))
            await board.leave_snapshot(f"{number:016x}", payload, keep_s=SNAPSHOT_S)

    async def go_on() -> None:
        second = 0
        while os.getppid() != 1:
            began_s = time.monotonic()
            await agent.ask_hub(at_board(partial(leave, second=second)))
            second += 1
            await asyncio.sleep(max(0.0, 1.0 - (time.monotonic() - began_s)))

    asyncio.run(go_on())


def simulated_node(number: int, keys: list[str]) -> NodeSnapshot:
    """Makes the snapshot of a real node with as many keys as a snapshot can have, under the name of another host."""
    agent = Agent("memory://")
    for limit in range(LIMITS):
        agent.limit(f"limit-{limit}", f"{100 * (limit + 1)}/minute")
        agent.limiter(f"limit-{limit}").hit(keys[number])
    node = agent.snapshot()
    agent.stop()
    mine = keys[number * KEYS // NODES : (number + 1) * KEYS // NODES]
    top = tuple(KeyUse(f"limit-{place % LIMITS}", key, 100 - place, 100) for place, key in enumerate(mine[:20]))
    now_s = time.time()
    denials = tuple(
        Denial(now_s - place, f"limit-{place % LIMITS}", 3, tuple(mine[place : place + 3])) for place in range(20)
    )
    return replace(node, host=f"web-{number}", pid=number + 1, keys=len(mine), top=top, denials=denials)


# ---------------------------------------------------------------- the agent


def agent_table(hub: str, *, turns: int, seconds: float) -> None:
    """Measures an agent while a console is open and while none is, in parts of a core."""
    watcher = Agent(hub, namespace=BUSY, exchange_timeout=5.0)
    watcher.hide_from_consoles()
    spent: dict[bool, list[float]] = {True: [], False: []}
    with role("agent", hub) as agent:
        read_spent(agent)
        for turn in range(2 * turns):
            is_open = turn % 2 == 1
            keep(watcher, is_open, SETTLE_S)
            before, began_s = read_spent(agent), time.monotonic()
            keep(watcher, is_open, seconds)
            spent[is_open].append((read_spent(agent) - before) / (time.monotonic() - began_s))
    watcher.stop()
    closed, opened = (100 * median(spent[each]) for each in (False, True))
    print("| an agent with 10,000 keys | % of a core |\n|---|---|")
    print(f"| no console is open | {closed:.2f} |\n| one is open | {opened:.2f} |\n| more | {opened - closed:.2f} |")


def keep(watcher: Agent, is_open: bool, seconds: float) -> None:  # noqa: FBT001  # as the table prints it
    """Keeps a console marked as open for `seconds` if `is_open`; else only waits."""
    until_s = time.monotonic() + seconds
    while (left_s := until_s - time.monotonic()) > 0:
        keep_s = WATCH_S if is_open else 0.001
        asyncio.run(watcher.ask_hub(at_board(partial(mark, keep_s=keep_s))))
        time.sleep(min(1.0, left_s))


async def mark(board: SnapshotBoard, keep_s: float) -> None:
    """Marks a console as open at the hub."""
    await board.watch(keep_s=keep_s)


def be_an_agent(hub: str) -> None:
    """Holds 10,000 keys, and prints this process's CPU time for each line that is read."""
    agent = Agent(hub, namespace=BUSY)
    limiters = [agent.limit(f"limit-{number}", "100/hour") for number in range(LIMITS)]
    for number in range(KEYS):
        limiters[number % LIMITS].hit(f"customer-{number:05}")
    print("ready", flush=True)
    os.set_blocking(sys.stdin.fileno(), False)
    number = 0
    while os.getppid() != 1:
        limiters[number % LIMITS].hit(f"customer-{number % KEYS:05}")
        number += 7
        if sys.stdin.readline():
            print(time.process_time(), flush=True)
        time.sleep(1 / ASKED_PER_S)


def read_spent(agent: subprocess.Popen[str]) -> float:
    """Returns the processor time of the agent's process, in seconds."""
    assert agent.stdin is not None
    assert agent.stdout is not None
    agent.stdin.write("\n")
    agent.stdin.flush()
    return float(agent.stdout.readline())


# ---------------------------------------------------------------- processes


def at_board(question: Callable[[SnapshotBoard], Awaitable[T]]) -> Callable[[Hub], Awaitable[T]]:
    """Returns the question to a hub that puts `question` to its board of snapshots."""

    async def ask(hub: Hub) -> T:
        assert isinstance(hub, SnapshotBoard)
        return await question(hub)

    return ask


@contextmanager
def role(name: str, hub: str) -> Iterator[subprocess.Popen[str]]:
    """Runs this program in another role, in a process of its own; waits until an agent is ready."""
    with running("bench.console", "--role", name, "--hub", hub) as process:
        if name == "agent":
            assert process.stdout is not None
            process.stdout.readline()
        yield process


@contextmanager
def running(*command: str, variables: dict[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
    """Runs a process, and kills it in the end."""
    environment = {**os.environ, **(variables or {})}
    process = subprocess.Popen(
        [sys.executable, "-m", *command], env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


if __name__ == "__main__":
    main()
