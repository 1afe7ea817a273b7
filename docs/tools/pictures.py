"""Draw the pictures of the documents anew: `make pictures`, or `python -m docs.tools.pictures`.

One is simulated, the other is drawn from bench/results. Run it after the benchmark has been, and look at what it draws.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from docs.tools import cost, partition

ROOT: Final = Path(__file__).parents[2]
PARTITION: Final = ROOT / "docs" / "pictures" / "partition.svg"
COST: Final = ROOT / "docs" / "pictures" / "cost.svg"
RESULTS: Final = ROOT / "bench" / "results"


def main() -> None:
    """Write both, and say where they are."""
    partition.draw(partition.figures(), PARTITION)
    cost.draw(cost.costs(RESULTS), COST)
    for path in (PARTITION, COST):
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
