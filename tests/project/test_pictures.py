"""Goal: the pictures of the documents show what was simulated and measured, and the README says no other numbers.

Method: the partition is simulated anew, the chart's figures are read from bench/results as they are, and both are
compared with what the committed files say that they were drawn from.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path

import pytest

from docs.tools import cost, drawing, frontier, partition, pictures

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
ANEW = "run make pictures, and look at docs/pictures"


@pytest.fixture(scope="module")
def partitioned() -> partition.Figures:
    return partition.figures()


@pytest.fixture(scope="module")
def measured() -> cost.Costs:
    return cost.costs(pictures.RESULTS)


def caption(picture: str) -> str:
    """Returns the README's text for a picture, on one line."""
    (said,) = re.findall(rf"!\[([^\]]*)\]\(docs/pictures/{picture}\)", README)
    return " ".join(said.split())


def test_the_picture_of_the_partition_is_that_of_todays_code(partitioned: partition.Figures) -> None:
    """It was drawn from the figures that the simulation gives now."""
    assert drawing.digest(asdict(partitioned)) == drawing.digest_in(pictures.PARTITION), ANEW


def test_the_chart_of_costs_is_that_of_the_last_results(measured: cost.Costs) -> None:
    """It was drawn from what stands in bench/results."""
    assert drawing.digest(asdict(measured)) == drawing.digest_in(pictures.COST), ANEW


def test_the_picture_of_what_cannot_be_had_is_that_of_its_pages_table() -> None:
    """It has a bar for each limiter of the table in each situation that it shows."""
    found = frontier.losses(pictures.FRONTIER_PAGE.read_text())

    assert drawing.digest([asdict(loss) for loss in found]) == drawing.digest_in(pictures.FRONTIER), ANEW
    assert len({loss.limiter for loss in found}) * len(frontier.SHOWN) == len(found) > 0


def test_the_readme_says_what_the_picture_of_the_partition_shows(partitioned: partition.Figures) -> None:
    """The worst windows of both limiters and the declared bound, in numbers; the bound lies between them."""
    said = caption("partition.svg")

    assert f"admits up to {max(partitioned.naive)} in a window" in said
    assert f"admits at most {max(partitioned.ours)} in any, and declares {partitioned.bound:g}" in said
    assert max(partitioned.ours) <= partitioned.bound < max(partitioned.naive)


def test_the_readme_says_what_the_chart_of_costs_shows(measured: cost.Costs) -> None:
    """A decision of a fleet costs less than a tenth of that of three others, and a request less than with slowapi."""
    decision = {bar.name: bar.median_us for bar in measured.decision}
    request = {bar.name: bar.median_us for bar in measured.request}
    said = caption("cost.svg")
    ours = decision["reconverge, allow, with a hub"]

    assert "less than a tenth of what limits, throttled-py or pyrate-limiter take" in said
    assert [] == [name for name in ("limits", "throttled-py", "pyrate-limiter") if not ours < 0.1 * decision[name]]
    assert "all rules and response fields less than slowapi" in said
    assert max(took for name, took in request.items() if name.startswith("reconverge")) < request["slowapi"]


def test_a_chart_without_its_rows_is_an_error_that_names_them(tmp_path: Path) -> None:
    """Results that lack a case of the chart are refused, with its name, and not drawn as an empty panel."""
    for name in ("decisions.json", "web.json"):
        (tmp_path / name).write_text(json.dumps({"about": {"date": "2026-11-24", "commit": "0" * 12}, "rows": []}))

    with pytest.raises(ValueError, match=re.escape(cost.DECISION)):
        cost.costs(tmp_path)


def test_a_picture_is_the_same_each_time(tmp_path: Path, measured: cost.Costs) -> None:
    """The same figures make the same file, byte for byte, so that a change of it is a change of what it shows."""
    cost.draw(measured, tmp_path / "a.svg")
    cost.draw(measured, tmp_path / "b.svg")

    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
