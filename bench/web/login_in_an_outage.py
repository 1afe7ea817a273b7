"""Counts how many logins each limiter admits, refuses and fails while its Redis is gone.

Four workers of gunicorn serve a page for logins with a limit for each user, who asks for twice the limit at random
times. The Redis is killed, stays away for ten windows, and comes back empty. A user's logins in a window of the clock
are compared with the limit, and with what one process with all requests (`memory://`) would have admitted.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, Final, NamedTuple

from bench.decisions.peers import peer
from bench.servers import OwnRedis
from bench.web.login import LIMITERS
from bench.web.served import Served, application
from reconverge import Agent
from reconverge.clock import SECOND_NS, ManualClock

QUOTA: Final = 5
WINDOW_S: Final = 10
USERS: Final = 40
BUSY: Final = 2.0
"""How many times the limit each user asks for."""
BEFORE, AWAY, AFTER = 4, 10, 4
"""The number of windows before, during and after the outage."""
ANSWER_S: Final = 5.0
WINDOWS: Final = BEFORE + AWAY + AFTER
PHASES: Final = (
    ("before", range(1, BEFORE)),
    ("away, first two windows", range(BEFORE, BEFORE + 2)),
    ("away, from the third on", range(BEFORE + 2, BEFORE + AWAY)),
    ("back, but empty", range(BEFORE + AWAY, WINDOWS)),
)
"""The phases of a run, each with the numbers of its windows; the very first window is for warming up."""
SERVED: Final = Served(
    "Flask under gunicorn",
    ("gunicorn", "bench.web.login:page()", "--threads", "4", "--log-level", "critical", "--bind"),
    ("flask", "gunicorn", "flask_limiter", "httpx"),
    LIMITERS,
    ("--workers", "4", "--worker-class", "gthread"),
)


class Login(NamedTuple):
    """A request for a login."""

    at_s: float
    """In seconds since the run began."""
    user: str
    status: int = 0
    """The status of the answer; 0 if there was none."""


class Counted(NamedTuple):
    """The numbers of the logins of one phase."""

    asked: int
    admitted: int
    over: int
    """The logins that were admitted above the limit of a user in a window."""
    central: int
    """The logins that one process with all requests would have admitted."""
    missed: int
    """The logins that were not admitted, although that process would have, summed over users and windows."""
    failed: int
    """The requests that were answered with an error, or not at all."""


def drawn(seed: int) -> list[Login]:
    """Returns all logins of a run, in the order of their times."""
    random = Random(seed)
    each = round(QUOTA * BUSY * WINDOWS)
    times = [(random.uniform(0, WINDOWS * WINDOW_S), f"user-{user}") for user in range(USERS) for _ in range(each)]
    return [Login(at_s, user) for at_s, user in sorted(times)]


def counted(answered: Sequence[Login]) -> Iterator[tuple[str, Counted]]:
    """Yields the counts of each phase."""
    central = _by_one_process(answered)
    for phase, windows in PHASES:
        asked = [login for login in answered if _window(login) in windows]
        admitted = Counter((login.user, _window(login)) for login in asked if login.status == 200)
        could = {place: n for place, n in central.items() if place[1] in windows}
        yield (
            phase,
            Counted(
                asked=len(asked),
                admitted=admitted.total(),
                over=sum(max(0, n - QUOTA) for n in admitted.values()),
                central=sum(could.values()),
                missed=sum(max(0, n - admitted[place]) for place, n in could.items()),
                failed=sum(login.status not in (200, 429) for login in asked),
            ),
        )


def _window(login: Login) -> int:
    return int(login.at_s // WINDOW_S)


def _by_one_process(logins: Sequence[Login]) -> dict[tuple[str, int], int]:
    clock = ManualClock()
    limiter = Agent("memory://", clock=clock).limit("login", f"{QUOTA}/{WINDOW_S}s", policy="strict")
    admitted: dict[tuple[str, int], int] = defaultdict(int)
    now_s = 0.0
    for login in sorted(logins, key=lambda login: login.at_s):
        clock.advance(login.at_s - now_s)
        now_s = login.at_s
        admitted[login.user, _window(login)] += limiter.allow(login.user)
    return admitted


def run(limiter: str, seed: int) -> list[Login]:
    """Serves the page behind a limiter, and sends it all logins. Returns them with the status of each answer."""
    environment = {"BENCH_QUOTA": f"{QUOTA} per {WINDOW_S} seconds"}
    with (
        OwnRedis() as redis,
        application(SERVED, limiter, redis.port, *SERVED.workers, environment=environment) as (port, _),
    ):
        return asyncio.run(_drive(redis, port, drawn(seed)))


async def _drive(redis: OwnRedis, port: int, logins: Sequence[Login]) -> list[Login]:
    httpx = peer("httpx")
    # Each login is a connection of its own, as users are, so that the workers share them at random.
    once = httpx.Limits(max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", limits=once, timeout=ANSWER_S) as client:
        await asyncio.sleep(-time.time() % WINDOW_S)  # the windows of a limit begin at multiples of their length
        began_s = time.monotonic()

        async def happen(event: Any, window: int) -> None:
            await asyncio.sleep(began_s + window * WINDOW_S - time.monotonic())
            await asyncio.to_thread(event)

        async def send(login: Login) -> Login:
            await asyncio.sleep(max(0.0, began_s + login.at_s - time.monotonic()))
            at_s = time.monotonic() - began_s
            try:
                answer = await client.post("/login", headers={"User": login.user})
            except httpx.HTTPError:
                return Login(at_s, login.user)
            return Login(at_s, login.user, answer.status_code)

        events = (happen(redis.kill, BEFORE), happen(redis.start, BEFORE + AWAY))
        *answered, _, _ = await asyncio.gather(*map(send, logins), *events)
    return [login for login in answered if isinstance(login, Login)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs each limiter in turn, and prints a table."""
    parser = argparse.ArgumentParser(prog="python -m bench.web.login_in_an_outage", description=__doc__)
    parser.add_argument("--limiter", choices=LIMITERS, action="append", help="by default all")
    parser.add_argument(
        "--seed", type=int, default=time.time_ns() // SECOND_NS, help="of the times (default: the time)"
    )
    options = parser.parse_args(arguments)
    for module in SERVED.needs:
        peer(module)
    print(
        f"{QUOTA} per {WINDOW_S} s for each of {USERS} users, who ask for {BUSY:g} times as much; seed {options.seed}\n"
    )
    print("| limiter | phase | asked | admitted | above the limit | refused falsely | errors |")
    print("|---|---|---|---|---|---|---|")
    for limiter in options.limiter or LIMITERS:
        for phase, found in counted(run(limiter, options.seed)):
            falsely = f"{100 * found.missed / max(1, found.central):.0f} %"
            figures = (found.asked, found.admitted, found.over, falsely, found.failed)
            print("|", " | ".join(map(str, (limiter, phase, *figures))), "|", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
