"""`reconverge tune` says which interval to use and what it costs, and what was asked wrongly."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from reconverge.simulation.studies import tuning
from tests.support.commands.checked import COLUMNS
from tests.support.commands.processes import run
from tests.support.commands.simulated import is_png, needs_other_files, say, told

SMALL = ("--nodes", "3", "--limit", "40/10s", "--algorithm", "fixed-window", "--seeds", "1")
OPTION = {
    "policy",
    "sync_interval_s",
    "over_mean_pct",
    "over_max_pct",
    "bound_pct",
    "falsely_refused_pct",
    "messages_per_s",
    "hub_cpu_pct",
    "hub_in_bytes_per_s",
    "hub_out_bytes_per_s",
    "hub_memory_bytes",
    "hubs",
    "asked_pct",
    "waited_p99_ms",
}


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exchanges are what takes time to simulate: two of the intervals will do."""
    monkeypatch.setattr(tuning, "INTERVAL_SHARES", (0.1, 1.0))


def prose(text: str) -> str:
    """Without the ends of lines, which depend on the terminal."""
    return " ".join(text.split())


@pytest.mark.slow
def test_the_command_of_the_documentation_gives_an_interval_and_a_policy() -> None:
    """A real process with as many of its own as it likes, and nothing but JSON in its output."""
    done = run(
        "tune",
        *("--nodes", "2", "--limit", "20/minute", "--demand", "2", "--max-over", "1%", "--redis-rtt", "2ms"),
        *("--seeds", "1", "--json"),
    )

    assert 0 == done.returncode, done.stderr
    assert '"advice": "Use sync_interval=' in done.stdout
    first, *further = done.stderr.splitlines()
    assert re.fullmatch(r"reconverge: simulating \d+ runs on \d+ processes", first)
    assert all(re.fullmatch(r"reconverge: simulating, \d+%", line) for line in further)


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_every_interval_is_weighed_with_every_policy() -> None:
    """Ours, and for comparison the one that believes the merged total, which is never chosen, whatever is allowed."""
    found = told("tune", *SMALL, "--max-over", "1000%")

    assert {(policy, interval) for policy in ("strict", "balanced", "naive") for interval in (1.0, 10.0)} == (
        {(option["policy"], option["sync_interval_s"]) for option in found["options"]}
    )
    assert all(set(option) == OPTION for option in found["options"])
    assert found["chosen"] in found["options"]
    assert found["chosen"]["policy"] != "naive"


@pytest.mark.usefixtures("quick")
def test_when_nothing_keeps_it_the_command_ends_with_status_1_and_tells_the_nearest() -> None:
    """So that a script notices, and whoever reads it knows how much more to allow."""
    said = say("tune", *SMALL, "--max-refused", "0%")

    assert 1 == said.status
    assert "Nothing that was tried keeps at most 1 % over and 0 % falsely refused. Nearest: sync_interval=" in (
        prose(said.stdout)
    )


@pytest.mark.usefixtures("quick")
def test_what_the_hub_has_to_bear_is_told() -> None:
    """Bytes and memory; and nothing else, as long as one Redis is enough."""
    found = told("tune", *SMALL, "--hot-keys", "100", "--cold-keys", "10000")

    assert "The Redis then receives and sends " in found["advice"]
    assert found["advice"].endswith(" MB for the keys.")
    assert 1 == found["chosen"]["hubs"]


@pytest.mark.usefixtures("quick")
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("policy", ["strict", "balanced"])
def test_strict_is_advised_with_a_word_about_new_keys(monkeypatch: pytest.MonkeyPatch, policy: str) -> None:
    """They are refused until the hub has answered, which the simulated keys are not, as all nodes know them."""
    monkeypatch.setattr("reconverge.cli.tune.OURS", (policy,))
    advice = told("tune", *SMALL, "--max-over", "10%", "--max-refused", "100%")["advice"]

    assert f"with policy='{policy}'" in advice
    assert ("A key that is new to a node is refused there until the hub has answered" in advice) is (policy == "strict")


@pytest.mark.usefixtures("quick")
def test_who_needs_more_than_one_redis_is_told_how_many() -> None:
    """And what else would do."""
    found = told("tune", *SMALL, "--hot-keys", "200000")
    hubs = found["chosen"]["hubs"]

    assert hubs > 1
    assert (
        f"One Redis is not enough: at most 50 % of a core should be in use. Divide the keys among {hubs}, "
        in (found["advice"])
    )


@pytest.mark.usefixtures("quick")
def test_requests_that_ask_are_simulated_and_told() -> None:
    """How many wait, and how long; then a new key is not refused, and that is no ground to take another policy."""
    unasked, asked = (told("tune", *SMALL, *options) for options in ((), ("--in-doubt", "ask:25ms")))

    assert {0.0} == {option["asked_pct"] for option in unasked["options"]}
    assert 0.0 < asked["chosen"]["asked_pct"] < 100.0
    assert 1.6 <= asked["chosen"]["waited_p99_ms"] <= 25.0
    assert "With in_doubt='ask:25ms' at most " in asked["advice"]
    assert "is refused there until the hub has answered" not in asked["advice"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--max-over", "5"), "max_over='5': is not a percentage like 1%"),
        (("--max-over", "-1%"), "max_over='-1%': is not a percentage like 1%"),
        (("--max-over", "lots"), "max_over='lots': is not a percentage like 1%"),
        (("--max-refused", "2"), "max_refused='2': is not a percentage like 1%"),
        (("--redis-rtt", "fast"), "rtt='fast': is not a duration like 2ms or 0.5s"),
        (("--redis-rtt", "1s"), "rtt='1s': must be at most 0.8s: a node gives up an exchange after 1 s"),
        (("--demand", "0"), "demand=0.0: must be above 0"),
        (("--algorithm", "sundial"), "limit '40/10s': "),
        (("--limit", "10/s, 100/minute"), "limit '10/s, 100/minute', at character 7: several quotas"),
        (("--in-doubt", "ask"), "in_doubt='ask': is neither 'refuse' nor a time to ask within"),
        (
            ("--in-doubt", "ask:2ms"),
            "in_doubt='ask:2ms': is not longer than a round trip of 0.002s, so no request asks",
        ),
        (("--plot", "tune.svg"), "plot='tune.svg': must end in .png or .html"),
        (("--plot", "nowhere/tune.png"), "plot='nowhere/tune.png': cannot be written: there is no such directory"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_mistake_is_told_in_one_sentence_before_anything_is_simulated(
    options: tuple[str, ...], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names the setting, and says what would do."""
    monkeypatch.setattr("reconverge.cli.tune.weigh", lambda *_, **__: pytest.fail("it was simulated"))
    said = say("tune", *SMALL, *options)

    assert 2 == said.status
    assert "" == said.stdout
    assert said.stderr.startswith(f"reconverge: {sentence}")
    assert "Traceback" not in said.stderr


@pytest.mark.parametrize("options", [("--limit", "40/10s"), ("--nodes", "3")], ids=str)
def test_what_cannot_be_guessed_has_to_be_told(options: tuple[str, ...]) -> None:
    """How many processes share which limit."""
    said = say("tune", *options)

    assert 2 == said.status
    assert "Missing option" in said.stderr


@pytest.mark.usefixtures("quick")
def test_the_table_fits_into_eighty_columns_and_is_explained() -> None:
    """Every figure in full, and what the columns mean below, before the advice."""
    said = say("tune", *SMALL)
    lines = said.stdout.splitlines()
    text = prose(said.stdout)

    assert max(map(len, lines)) <= COLUMNS
    assert "…" not in said.stdout
    assert ["balanced"] * 2 + ["strict"] * 2 + ["naive"] * 2 == (
        [name for line in lines for name in line.split()[:1] if name in ("strict", "balanced", "naive")]
    )
    for word in ("over: ", "declared: ", "refused: ", "messages/s: ", "Redis: ", "the worst of four patterns"):
        assert word in text
    assert text.index("Redis: ") < text.index("Use sync_interval=")


@pytest.mark.usefixtures("quick")
def test_what_asks_is_a_column_where_requests_ask() -> None:
    """Within eighty columns, explained; and elsewhere not there."""
    said = say("tune", *SMALL, "--in-doubt", "ask:25ms")
    lines = said.stdout.splitlines()

    assert max(map(len, lines)) <= COLUMNS
    assert any(line.split()[-2:] == ["Redis", "asked"] for line in lines)
    assert "asked: of the requests for a hot key, in %." in prose(said.stdout)
    assert "asked: " not in say("tune", *SMALL).stdout


@pytest.mark.usefixtures("quick")
def test_whoever_asks_about_a_large_limit_is_told_what_was_simulated_instead() -> None:
    """And with several keys that the traffic is an upper bound."""
    text = prose(say("tune", "--nodes", "1", "--limit", "1000000/10s", "--demand", "0.1", "--hot-keys", "3").stdout)

    assert "Simulated with 2000/10s (sliding-window), which is harder to share." in text
    assert "messages/s: of the fleet, at most." in text


@pytest.mark.usefixtures("quick")
def test_a_plot_shows_over_admission_refusals_and_traffic_against_the_interval(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three panels over the same intervals, with what is allowed and what was chosen."""
    drawn: list[Any] = []
    monkeypatch.setattr("reconverge.cli.shared.picture.save_png", lambda picture, path: drawn.append(picture))
    say("tune", *SMALL, "--plot", str(tmp_path / "tune.png"))
    from matplotlib.figure import Figure  # noqa: PLC0415  # it takes a while

    figure = Figure()
    drawn[0].draw_on(figure)
    over, refused, traffic = figure.axes

    assert ["strict", "balanced", "naive", "allowed", "chosen"] == over.get_legend_handles_labels()[1]
    assert ["strict", "balanced", "chosen"] == refused.get_legend_handles_labels()[1]
    assert ["strict", "balanced", "chosen"] == traffic.get_legend_handles_labels()[1]
    assert ["1", "10"] == [label.get_text() for label in traffic.get_xticklabels()]


@pytest.mark.usefixtures("quick")
def test_a_plot_is_a_picture_or_a_page_that_needs_no_other_file(tmp_path: Path) -> None:
    """The page has the advice and the table, too."""
    say("tune", *SMALL, "--plot", str(tmp_path / "tune.png"))
    said = say("tune", *SMALL, "--plot", str(tmp_path / "tune.html"))
    page = (tmp_path / "tune.html").read_text()

    assert is_png(tmp_path / "tune.png")
    assert 0 == said.status
    assert [] == needs_other_files(page)
    assert "data:image/svg+xml;base64," in page
    assert "Use sync_interval=" in page
    assert 6 == page.count("</tr>") - 1
