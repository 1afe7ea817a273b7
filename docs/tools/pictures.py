"""Draw the pictures of the documents anew: `make pictures`, or `python -m docs.tools.pictures`.

One is simulated, the others are drawn from bench/results and from a page. Run it after the benchmark has been, and look
at what it draws.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from docs.tools import cost, frontier, partition

ROOT: Final = Path(__file__).parents[2]
PARTITION: Final = ROOT / "docs" / "pictures" / "partition.svg"
COST: Final = ROOT / "docs" / "pictures" / "cost.svg"
FRONTIER: Final = ROOT / "docs" / "pictures" / "frontier.svg"
FRONTIER_PAGE: Final = ROOT / "docs" / "internals" / "what-cannot-be-had.md"
RESULTS: Final = ROOT / "bench" / "results"


def main() -> None:
    """Writes them, and prints where they are."""
    partition.draw(partition.figures(), PARTITION)
    cost.draw(cost.costs(RESULTS), COST)
    frontier.draw(frontier.losses(FRONTIER_PAGE.read_text()), FRONTIER)
    for path in (PARTITION, COST, FRONTIER):
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
