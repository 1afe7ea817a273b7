"""Threads that share a budget whose costs are known only afterwards: charge an estimate, settle the truth.

The costs are real: the tokens of an LLM service's requests, of which the generated ones cannot be known before.
RECONVERGE_HUB says where the nodes meet; without it, this process is the only node.
"""

import csv
import gzip
import os
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

from reconverge import Agent, RateLimiter

TRACE = Path(__file__).parent / "data" / "llm-conv-2023.csv.gz"
REQUESTS = 2000
THREADS = 8
GENERATED_TOKENS = 250
"""What a request is expected to generate."""


def run(limiter: RateLimiter, row: dict[str, str]) -> int | None:
    """Carry out one request if the budget allows it; returns the tokens it took."""
    context = int(row["context_tokens"])
    with limiter.reserve("team-a", context + GENERATED_TOKENS) as reservation:
        if not reservation:
            return None
        tokens = context + int(row["generated_tokens"])  # here the model would be asked
        reservation.settle(tokens)
        return tokens


def main() -> None:
    """Play the first requests of the trace on several threads at once."""
    with gzip.open(TRACE, "rt", newline="") as lines:
        rows = list(islice(csv.DictReader(lines), REQUESTS))
    with Agent(os.environ.get("RECONVERGE_HUB"), namespace=f"example-{os.getpid()}") as agent:
        limiter = agent.limit("tokens", "2000000/day")
        with ThreadPoolExecutor(THREADS) as threads:
            done = [tokens for tokens in threads.map(lambda row: run(limiter, row), rows) if tokens is not None]
        usage = limiter.usage("team-a")
    print(f"{len(done)} of {REQUESTS} requests were admitted on {THREADS} threads")
    print(f"they took {sum(done)} tokens, and {usage.own} of {usage.limit} are charged")


main()
