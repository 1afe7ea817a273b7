"""Records the answers of the corpus' cases: `python -m tests.integrations.corpus.recorded`.

Of the first cases of each kind the answers are recorded in full, to be read; of the others a digest of each.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from pprint import pformat
from typing import Any, Final

from tests.integrations.corpus import of_asgi, of_fastapi, of_guard, of_wsgi
from tests.integrations.corpus.drawing import Draw, run_of

HERE: Final = Path(__file__).parent
DIGESTS: Final = HERE / "digests.json"
IN_FULL: Final = HERE / "answers.txt"
IN_FULL_MAX: Final = 6
"""So many cases of each kind are recorded in full."""
KINDS: Final[Mapping[str, tuple[Callable[[Draw], list[Any]], int]]] = {
    "guard": (of_guard.run, 500),
    "asgi": (run_of(of_asgi.OfAsgi), 500),
    "wsgi": (run_of(of_wsgi.OfWsgi), 300),
    "flask": (run_of(of_wsgi.OfFlask), 300),
    "fastapi": (run_of(of_fastapi.OfFastApi), 250),
}
"""The function that runs a case, and the number of cases."""


def answers(kind: str, number: int) -> list[str]:
    """Returns a case's answers, without addresses in memory, and without the order of a set of methods."""
    run, _ = KINDS[kind]
    steps = [re.sub(r"0x[0-9a-f]{6,}", "0x", pformat(step, width=120)) for step in run(Draw(f"{kind} {number}"))]
    return [re.sub(r"\('allow', '([A-Z, ]+)'\)", _in_order, step) for step in steps]


def _in_order(allow: re.Match[str]) -> str:
    return f"('allow', '{', '.join(sorted(allow[1].split(', ')))}')"


def digest(step: str) -> str:
    """A few letters for an answer."""
    return sha256(step.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def in_full(kind: str, number: int, steps: list[str]) -> str:
    """A case as it is recorded to be read."""
    head = f"==== {kind} {number}\n"
    return head + "\n".join(steps).encode("utf-8", "backslashreplace").decode() + "\n"


def record() -> None:
    logging.disable()
    digests: dict[str, list[str]] = {}
    texts: list[str] = []
    for kind, (_, count) in KINDS.items():
        for number in range(count):
            steps = answers(kind, number)
            digests[f"{kind} {number}"] = ["".join(map(digest, steps))]
            if number < IN_FULL_MAX:
                texts.append(in_full(kind, number, steps))
    lines = [f"{json.dumps(name)}: {json.dumps(each[0])}" for name, each in digests.items()]
    DIGESTS.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    IN_FULL.write_text("".join(texts))


if __name__ == "__main__":
    record()
