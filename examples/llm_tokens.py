"""Four workers of a chat service share a budget of tokens per minute; what an answer costs is known only when it ends.

A request reserves what its prompt costs and what an answer usually does, streams the answer, and is charged for what it
was. Beside that, what happens if prompts alone are charged. Plays ten minutes of a recording, a minute in a second.
RECONVERGE_HUB says where the workers meet; without it, a private redis-server is started for this example.
"""

import asyncio
import csv
import gzip
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

from reconverge import Agent, Limit, RateLimiter
from reconverge.hub.registry import HubSettings, open_hub

RECORDING = Path(__file__).parent / "data" / "llm-conv-2023.csv.gz"
WORKERS = 4
SPEED = 60
PER_MINUTE = Limit(300_000, 60 / SPEED, algorithm="fixed-window")
USUAL_ANSWER = 250
CHUNK = 50
TOKENS_PER_S = 40 * SPEED
HUB = os.environ.get("RECONVERGE_HUB", "embedded://llm-tokens")

Used = Counter[int]
"""Tokens, by minute."""


async def generate(tokens: int) -> AsyncIterator[int]:
    """A model that streams its answer: how many tokens have come."""
    while tokens > 0:
        chunk = min(CHUNK, tokens)
        await asyncio.sleep(chunk / TOKENS_PER_S)
        yield chunk
        tokens -= chunk


async def serve(limiter: RateLimiter, prompt: int, answer: int, start: float, used: Used) -> bool:
    """One request, charged for what it costs."""
    async with limiter.reserve("model", prompt + USUAL_ANSWER) as reservation:
        if not reservation:
            return False
        reservation.spend(prompt)
        used[minute(start)] += prompt
        async for chunk in generate(answer):
            reservation.spend(chunk)  # beyond what was reserved it is charged at once
            used[minute(start)] += chunk
    return True  # what was reserved and not spent is back


async def serve_prompt_only(limiter: RateLimiter, prompt: int, answer: int, start: float, used: Used) -> bool:
    """The same request, charged for what is known beforehand."""
    if not limiter.allow("model", prompt):
        return False
    used[minute(start)] += prompt
    async for chunk in generate(answer):
        used[minute(start)] += chunk
    return True


def minute(start: float) -> int:
    """Which of the recording's minutes it is."""
    return int((time.time() - start) * SPEED // 60)


async def work(number: int, namespace: str, minutes: int, start: float) -> dict[str, tuple[Used, int]]:
    """One worker: every fourth request of the recording, when it came. Returns tokens used and requests served."""
    used: dict[str, Used] = {"settled": Counter(), "prompts only": Counter()}
    serving: dict[str, list[asyncio.Task[bool]]] = {name: [] for name in used}
    async with Agent(HUB, namespace=namespace, sync_interval=0.05) as agent:
        settled = agent.limit("tokens", PER_MINUTE)
        prompts = agent.limit("prompts", PER_MINUTE)
        settled.warm(["model"])
        prompts.warm(["model"])
        for moment, prompt, answer in recorded(minutes)[number::WORKERS]:
            await asyncio.sleep(start + moment / SPEED - time.time())
            one = serve(settled, prompt, answer, start, used["settled"])
            other = serve_prompt_only(prompts, prompt, answer, start, used["prompts only"])
            serving["settled"].append(asyncio.create_task(one))
            serving["prompts only"].append(asyncio.create_task(other))
        return {name: (used[name], sum(await asyncio.gather(*tasks))) for name, tasks in serving.items()}


def recorded(minutes: int) -> list[tuple[float, int, int]]:
    """When each request came, what its prompt cost, and what its answer did."""
    with gzip.open(RECORDING, "rt", newline="") as file:
        rows = [(float(row[0]), int(row[1]), int(row[2])) for row in list(csv.reader(file))[1:]]
    return [row for row in rows if row[0] < 60 * minutes]


def run(arguments: tuple[int, str, int, float]) -> dict[str, tuple[Used, int]]:
    """A worker's process."""
    return asyncio.run(work(*arguments))


async def hub_total(namespace: str) -> int:
    """What the hub knows to have been charged, and not given back."""
    hub = open_hub(HUB, HubSettings(namespace, 5.0))
    try:
        return (await hub.totals())["tokens"].net
    finally:
        await hub.close()


def draw(found: dict[str, Used], path: Path) -> None:
    """Tokens used in each minute, against the limit."""
    from matplotlib.figure import Figure  # noqa: PLC0415  # an extra, which not everybody has
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415

    figure = Figure(figsize=(9, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for (name, used), shift in zip(found.items(), (-0.2, 0.2), strict=True):
        axes.bar([each + shift for each in used], list(used.values()), width=0.4, label=name)
    axes.axhline(PER_MINUTE.quota, color="#333333", linestyle="--", label="limit")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel="minute", ylabel="tokens used", title="A budget of tokens per minute, shared by four workers")
    axes.legend(loc="lower right")
    figure.savefig(path, dpi=110)


def main() -> None:
    """Have the workers run, and tell what each minute used."""
    minutes = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    namespace = f"example-{os.getpid()}"
    keeper = Agent(HUB, namespace=namespace)  # so that a private server outlives the workers
    with keeper, multiprocessing.get_context("spawn").Pool(WORKERS) as pool:
        keeper.limit("tokens", PER_MINUTE)
        start = float(int(time.time()) + 3)
        parts = pool.map(run, [(number, namespace, minutes, start) for number in range(WORKERS)])
        pool.close()
        pool.join()  # let the workers end by themselves
        total = asyncio.run(hub_total(namespace))
    found: dict[str, Used] = {name: sum((part[name][0] for part in parts), Counter()) for name in parts[0]}
    for name, used in found.items():
        served = sum(part[name][1] for part in parts)
        fullest = f"{max(used.values())} in the fullest minute, of {PER_MINUTE.quota}"
        print(f"{name}: {served} requests served, {used.total()} tokens; {fullest}")
    print(f"the hub counts {total} tokens, and {found['settled'].total()} were used")
    try:
        draw(found, Path("llm_tokens.png"))
    except ImportError:
        return
    print("drawn in llm_tokens.png")


if __name__ == "__main__":
    main()
