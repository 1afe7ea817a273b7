"""The cost of a fleet's many customers for a node, all of them held or their pages fetched on demand.

    python -m bench.contracts.on_demand [--customers N] [--changes N]

One node in a process of its own follows contracts at a real Redis on 20 plans, where every tenth customer has a limit
of its own. It tells what the process occupies more, with the contracts and once it was asked about some customers;
what `Contracts.hit` takes for customers that it has met, and for the first request of others; and how long after the
writer began a change is obeyed, with and without hints. Prints Markdown.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from statistics import median
from typing import Any, Final

from bench.child import answer, in_a_process
from bench.servers import redis_on_loopback
from reconverge import Agent
from reconverge.contracts.contracts import Contracts
from reconverge.contracts.following import Hold, follow_hub
from reconverge.contracts.store.hub_book import HubBook
from reconverge.contracts.store.reader import ContractsReader
from reconverge.hub.registry import HubSettings
from reconverge.published.envelope import Secrets
from reconverge_sync.redis.hub import RedisHub

MODULE: Final = "bench.contracts.on_demand"
NAMESPACE: Final = "shop"
SECRET: Final = "0f3a-not-a-secret-any-more"  # noqa: S105  # of a Redis that ends with the measurement
PLANS: Final = 20
INTERVAL_S: Final = 1.0
MET: Final = (50, 500, 5000)
HITS: Final = 200_000
LOOKS_MAX: Final = 60_000
LOOK_S: Final = 0.001
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


def name_of(number: int) -> str:
    """Returns the name of a customer."""
    return f"customer-{number:06d}"


def document(customers: int) -> dict[str, Any]:
    """Returns contracts on 20 plans; every tenth customer has a limit of its own."""
    return {
        "unknown": "plan-0",
        "plans": {f"plan-{each}": {"limits": {"calls": f"{1000 + each}/minute"}} for each in range(PLANS)},
        "customers": {
            name_of(number): {
                "plan": f"plan-{number % PLANS}",
                **({"limits": {"calls": f"{2000 + number // 10 % 8}/minute"}} if number % 10 == 0 else {}),
            }
            for number in range(customers)
        },
    }


async def publish(url: str, customers: int) -> None:
    """Publishes version 1 of the contracts."""
    hub = RedisHub(url, HubSettings(NAMESPACE, 30.0))
    await HubBook(hub, NAMESPACE, Secrets(SECRET)).replace(document(customers), author="bench")
    await hub.close()


# -------------------------------------------------------------------- in the child


def measured(url: str, customers: int, changes: int, *, hold: Hold, hints: bool) -> dict[str, float]:
    """Measures one node; the names of the figures give the units: bytes, nanoseconds or milliseconds."""
    agent = Agent(url, namespace=NAMESPACE, sync_interval=INTERVAL_S, exchange_timeout=30.0)
    plans = {key: value for key, value in document(1).items() if key != "customers"}
    contracts = Contracts(agent, plans)
    agent.start()
    agent.check()
    before = _occupied()
    reader = follow_hub(contracts, secret=SECRET, hold=hold, hints=hints)
    _until(partial(_obeys, contracts, 1))
    found = {"held": _occupied() - before}
    order = Random(1).sample(range(customers), customers)
    done, first_ns = 0, list[int]()
    for met in MET:
        for number in order[done:met]:
            started = time.perf_counter_ns()
            contracts.hit(name_of(number))
            first_ns.append(time.perf_counter_ns() - started)
        done = met
        _until(partial(_known, contracts, [name_of(each) for each in order[:done]]))
        found[f"met {met}"] = _occupied() - before
    found["first ns"] = median(first_ns)
    found["first p99 ns"] = sorted(first_ns)[len(first_ns) * 99 // 100]
    found["hit ns"] = _hit_ns(contracts, [name_of(number) for number in order[: MET[-1]]])
    found["page ms"] = _page_ms(contracts, reader)
    found["pages"] = float(reader.stats().pages_held or 0)
    obeyed = asyncio.run(_changes(url, contracts, [name_of(number) for number in order[:changes]]))
    found["change ms"], found["change most ms"] = median(obeyed), max(obeyed)
    agent.stop()
    return found


def _known(contracts: Contracts, names: Sequence[str]) -> bool:
    return not any(contracts.test(name).pending for name in names)


def _obeys(contracts: Contracts, version: int) -> bool:
    return contracts.version >= version


def _occupied() -> float:
    gc.collect()
    return float(int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES)


def _until(condition: Callable[[], bool]) -> None:
    for _ in range(LOOKS_MAX):
        if condition():
            return
        time.sleep(LOOK_S)
    raise TimeoutError("it did not come")


def _hit_ns(contracts: Contracts, names: Sequence[str]) -> float:
    """Returns the thread's CPU time for a decision about a customer whose page the node has."""
    started = time.thread_time_ns()
    for turn in range(HITS):
        contracts.hit(names[turn % len(names)])
    return (time.thread_time_ns() - started) / HITS


def _page_ms(contracts: Contracts, reader: ContractsReader) -> float:
    """Returns the milliseconds from a customer's first request until its own contract holds; the node begins empty."""
    demand = reader._on_demand  # noqa: SLF001  # a node that has just started holds no pages either
    if demand is None or demand.customers is None:
        return 0.0
    took: list[float] = []
    for number in range(20):
        page = demand.customers.number_of(name_of(number))
        demand._table.pop(page, None)  # noqa: SLF001
        contracts.forget_standings()
        started = time.perf_counter()
        asked = contracts.ask_blocking(name_of(number), within=10.0)
        took.append(1000 * (time.perf_counter() - started))
        if asked.pending:
            raise TimeoutError("the page did not come")
    return median(took)


async def _changes(url: str, contracts: Contracts, names: Sequence[str]) -> list[float]:
    """Returns, for each change, the milliseconds from the start of the writer until the node applies the change."""
    hub = RedisHub(url, HubSettings(NAMESPACE, 30.0))
    book, took, random = HubBook(hub, NAMESPACE, Secrets(SECRET)), list[float](), Random(2)
    await asyncio.sleep(2 * INTERVAL_S)
    for number, name in enumerate(names):
        await asyncio.sleep(random.uniform(0, INTERVAL_S))
        written = await book.set_customer(name, f"plan-{number % PLANS}", author="bench")
        started = time.perf_counter()
        await asyncio.to_thread(_until, partial(_obeys, contracts, written))
        took.append(1000 * (time.perf_counter() - started))
    await hub.close()
    return took


# -------------------------------------------------------------------- all of it

CASES: Final[dict[str, dict[str, Any]]] = {
    "all held, no hints": {"hold": "all", "hints": False},
    "all held": {"hold": "all", "hints": True},
    "on demand, no hints": {"hold": "on-demand", "hints": False},
    "on demand": {"hold": "on-demand", "hints": True},
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures all cases, each with a Redis of its own."""
    parser = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--customers", type=int, default=100_000)
    parser.add_argument("--changes", type=int, default=20)
    options = parser.parse_args(arguments)
    found: dict[str, dict[str, float]] = {}
    for case, settings in CASES.items():
        with redis_on_loopback() as port:
            url = f"redis://127.0.0.1:{port}/0"
            asyncio.run(publish(url, options.customers))
            task = {"url": url, "customers": options.customers, "changes": options.changes, **settings}
            found[case] = in_a_process(MODULE, task)
    print(f"| {options.customers} customers | {' | '.join(found)} |\n|---{'|---' * len(found)}|")
    for name in next(iter(found.values())):
        scale, unit = (1 / 2**20, "MiB") if name.startswith(("held", "met")) else (1.0, "")
        print(f"| {name} {unit} | {' | '.join(f'{each[name] * scale:.1f}' for each in found.values())} |")
    return 0


if __name__ == "__main__":
    sys.exit(answer(measured) if sys.argv[1:2] and sys.argv[1].startswith("{") else main())
