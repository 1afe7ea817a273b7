"""A node's process: `python -m chaos.fleet` reads its plan, and then its orders, from its input."""

from __future__ import annotations

import logging
import sys

from chaos.fleet.node import Node
from chaos.fleet.plan import GEVENT, Plan
from chaos.fleet.programs import PROGRAMS


def main() -> None:
    """Runs a node from its plan to its end."""
    logging.basicConfig(level=logging.WARNING)
    for name in ("reconverge", "chaos"):
        logging.getLogger(name).setLevel(logging.DEBUG)
    plan = Plan.of_line(sys.stdin.readline())
    PROGRAMS[plan.program](Node(plan, decides=plan.program != GEVENT))


if __name__ == "__main__":
    main()
