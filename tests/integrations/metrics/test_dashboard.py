"""The dashboard and the alert rules that can be copied ask for what there is, and for nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from reconverge import Agent
from reconverge.integrations.metrics import METRICS
from reconverge.integrations.prometheus import AgentCollector

BOARD: dict[str, Any] = json.loads(
    (Path(__file__).parents[3] / "docs" / "operate" / "grafana" / "reconverge.json").read_text()
)
PANELS: list[dict[str, Any]] = BOARD["panels"]
VARIABLES: list[dict[str, Any]] = BOARD["templating"]["list"]
QUERIES: list[str] = [
    *(target["expr"] for panel in PANELS for target in panel["targets"]),
    *(variable["definition"] for variable in VARIABLES if variable["type"] == "query"),
]
ALERTS = (Path(__file__).parents[3] / "docs" / "operate" / "prometheus" / "alerts.yaml").read_text()
RULES: list[dict[str, Any]] = [rule for group in yaml.safe_load(ALERTS)["groups"] for rule in group["rules"]]
BY_PROMETHEUS = {"le", "job"}
"""Labels that Prometheus adds."""


def series_told() -> dict[str, set[str]]:
    """Every series that an agent tells, with its labels."""
    agent = Agent("memory://")
    agent.limit("login", "1/minute").allow("ada")
    agent.concurrency("render", 20)
    registry = CollectorRegistry()
    registry.register(AgentCollector(agent))
    told: dict[str, set[str]] = {}
    for family in registry.collect():
        for sample in family.samples:
            told[sample.name] = set(sample.labels)
    return told | {"reconverge_sync_failures_total": {"class"}}  # of which there is none


@pytest.mark.parametrize("query", [*QUERIES, *(rule["expr"] for rule in RULES)])
def test_every_query_asks_for_series_that_there_are(query: str) -> None:
    """By the names that are scraped, and by labels that they have."""
    told = series_told()
    asked = re.findall(r"\breconverge_\w+", query)
    selected = {label for part in re.findall(r"\{(.*?)\}", query) for label in re.findall(r"(\w+)=~?\"", part)}
    grouped = {label for part in re.findall(r"by \((.*?)\)", query) for label in part.split(", ")}
    labels = set[str]().union(*(told[name] for name in asked)) if set(asked) <= set(told) else set()

    assert asked
    assert set() == set(asked) - set(told)
    assert set() == (selected | grouped) - labels - BY_PROMETHEUS


def test_every_alert_says_what_it_means() -> None:
    """Each rule has a name of its own and a sentence for its reader."""
    assert len(RULES) == len({rule["alert"] for rule in RULES}) >= 5
    assert [] == [rule["alert"] for rule in RULES if not rule["annotations"]["summary"].endswith(".")]


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_every_metric_has_a_panel(metric: Any) -> None:
    """Nothing is told that nobody looks at."""
    assert [panel["title"] for panel in PANELS if any(metric.name in target["expr"] for target in panel["targets"])]


def test_the_panels_can_be_drawn() -> None:
    """Each has a place of its own on the grid, a number of its own, and asks the source that was chosen."""
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in PANELS]
    named = {variable["name"] for variable in VARIABLES}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(PANELS)))

    assert len(set(places)) == len({panel["id"] for panel in PANELS}) == len(PANELS)
    assert [] == [panel["title"] for panel in PANELS if panel["gridPos"]["x"] + panel["gridPos"]["w"] > 24]
    assert {"prometheus"} == {panel["datasource"]["type"] for panel in PANELS}
    assert named == used - {"__rate_interval"}


@pytest.mark.parametrize("query", [*QUERIES, *(rule["expr"] for rule in RULES)])
def test_brackets_match(query: str) -> None:
    """A text without matching brackets is no query."""
    pairs = {")": "(", "]": "[", "}": "{"}
    opened: list[str] = []
    for character in query:
        if character in pairs.values():
            opened.append(character)
        elif character in pairs:
            assert pairs[character] == opened.pop()

    assert [] == opened
