"""Flask-Limiter, with one import and another storage URI: it decides from memory, and goes on without its Redis.

Two processes of one application share a limit of 100 requests an hour. RECONVERGE_HUB says where they meet; without it,
in a private redis-server.
"""

import os
import time
from concurrent.futures import ProcessPoolExecutor

from flask import Flask
from flask_limiter import Limiter
from flask_limiter.util import get_remote_address

# The one import; it registers the scheme.
import reconverge.integrations.limits_storage  # noqa: F401  # pyright: ignore[reportUnusedImport]

HUB = os.environ.get("RECONVERGE_HUB", "embedded://flask-limiter-drop-in")

app = Flask(__name__)
limiter = Limiter(
    get_remote_address,
    app=app,
    storage_uri=f"reconverge+{HUB}?sync_interval=0.05&policy=strict",  # instead of redis://localhost:6379
    headers_enabled=True,
)


@app.get("/")
@limiter.limit("100/hour")
def index() -> str:
    """What is worth a limit."""
    return "hello"


def visit(requests: int) -> tuple[int, int, str]:
    """Ask so many times; returns how many were admitted, how many refused, and what is said to be left."""
    client = app.test_client()
    answers = []
    for _ in range(requests):
        answers.append(client.get("/"))
        time.sleep(0.005)  # meanwhile the exchanges move the quota to where it is asked for
    admitted = sum(answer.status_code == 200 for answer in answers)
    refused = sum(answer.status_code == 429 for answer in answers)
    return admitted, refused, answers[-1].headers["X-RateLimit-Remaining"]


if __name__ == "__main__":
    with ProcessPoolExecutor(2) as processes:
        (one, refused, left), (two, refused_too, _) = processes.map(visit, [300, 300])
    print(f"Two processes were asked 600 times and admitted {one} + {two} = {one + two} of 100.")
    print(f"{refused + refused_too} requests were answered 429, and {left} are left.")
