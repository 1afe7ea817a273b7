"""`reconverge simulate` says what it found as a table, as JSON and as pictures, and what was asked wrongly."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconverge.simulation import COMPARED
from tests.support.commands.checked import COLUMNS
from tests.support.commands.processes import run
from tests.support.commands.simulated import is_png, mistake, needs_other_files, say, told

SMALL = ("--nodes", "4", "--limit", "50/10s", "--windows", "4", "--seeds", "1")
FIELDS = {
    "over_mean_pct",
    "over_p99_pct",
    "over_max_pct",
    "under_mean_pct",
    "under_max_pct",
    "falsely_refused_pct",
    "messages_per_node_window",
    "bound_pct",
    "bound_violations",
}


def figures(*options: str) -> dict[str, Any]:
    """The figures of a small fleet, by policy."""
    policies: dict[str, Any] = told("simulate", *SMALL, *options)["policies"]
    return policies


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """A hundred requests of one node, twenty-five in each of four windows of ten seconds, some of another key."""
    path = tmp_path / "arrivals.csv"
    rows = [f"{number * 0.4},2,{'bob' if number % 5 else 'ada'},{1 + number % 2}" for number in range(100)]
    path.write_text("t_s,node,key,cost\n" + "\n".join(rows) + "\n")
    return path


@pytest.mark.slow
def test_the_command_of_the_documentation_gives_every_figure_of_the_policy() -> None:
    """A real process, a fault in the middle, and nothing but JSON in its output."""
    done = run(
        "simulate",
        *("--nodes", "8", "--limit", "100/10s", "--algorithm", "fixed-window", "--policy", "balanced"),
        *("--sync-interval", "1", "--demand", "3", "--pattern", "flash", "--fault", "cut:half@2w+5w"),
        *("--windows", "9", "--warmup", "2", "--rtt", "2ms", "--seeds", "2", "--json"),
    )

    assert 0 == done.returncode, done.stderr
    assert '{\n  "policies": {\n    "balanced": {' in done.stdout
    assert all(f'"{field}": ' in done.stdout for field in FIELDS)
    first, *further = done.stderr.splitlines()
    assert re.fullmatch(r"reconverge: simulating \d+ runs on \d+ processes", first)
    assert all(re.fullmatch(r"reconverge: simulating, \d+%", line) for line in further)


def test_all_policies_are_compared_unless_some_are_asked_for() -> None:
    """Ours, the one that believes the merged total, and one that predicts; the others only when they are named."""
    assert set(COMPARED) == set(figures())
    assert ["naive", "strict"] == list(figures("--policy", "naive", "--policy", "strict", "--policy", "naive"))
    assert {"strict", "balanced", "naive", "predictive"} <= set(COMPARED)


def test_several_quotas_have_figures_each() -> None:
    """In the order in which they were written, as JSON and as tables."""
    options = ["--nodes", "4", "--windows", "20", "--seeds", "1", "--policy", "strict"]
    several = ("--limit", "20/s; 100/10s burst 50", *options)

    quotas = told("simulate", *several)["quotas"]
    said = say("simulate", *several).stdout

    assert ["20/1s (sliding-window)", "100/10s burst 50 (token-bucket)"] == [each["limit"] for each in quotas]
    assert [0.0, 0.0] == [each["policies"]["strict"]["over_max_pct"] for each in quotas]
    assert "share 20/1s (sliding-window), simulated for 20 windows" in " ".join(said.split())
    assert "share 100/10s burst 50 (token-bucket), simulated for 2 windows" in " ".join(said.split())


def test_every_policy_has_every_figure_and_strict_admits_nothing_above_the_limit() -> None:
    """While naive shows that there was something to admit."""
    found = figures("--fault", "cut:half@1w+2w")

    assert all(set(each) >= FIELDS for each in found.values())
    assert 0.0 == found["strict"]["over_max_pct"]
    assert 0.0 == found["strict"]["bound_pct"]
    assert found["naive"]["over_max_pct"] > 10.0
    assert {0} == {each["bound_violations"] for each in found.values()}


def test_the_same_seeds_give_the_same_figures_and_others_others() -> None:
    """Also on several processes."""
    first = figures("--policy", "balanced", "--pattern", "onoff", "--seeds", "2")

    assert first == figures("--policy", "balanced", "--pattern", "onoff", "--seeds", "2", "--processes", "2")
    assert first != figures("--policy", "balanced", "--pattern", "onoff", "--seeds", "2", "--seed", "2")


def test_options_reach_the_fleet() -> None:
    """Each of them changes the figures in the way that it should."""
    slow = figures("--policy", "naive", "--sync-interval", "5")["naive"]
    quick = figures("--policy", "naive", "--sync-interval", "0.5")["naive"]
    many = figures("--policy", "balanced", "--cost-max", "5", "--keys", "2")["balanced"]
    wide = figures("--policy", "balanced", "--max-overshoot", "0.5")["balanced"]

    assert 2.0 == pytest.approx(slow["messages_per_node_window"], rel=0.1)
    assert 20.0 == pytest.approx(quick["messages_per_node_window"], rel=0.1)
    assert quick["over_mean_pct"] < slow["over_mean_pct"]
    assert 10 + 100 * 4 * 5 / 50 == many["bound_pct"]
    assert 50 + 100 * 4 * 1 / 50 == wide["bound_pct"]


@pytest.mark.slow
def test_requests_ask_in_doubt_when_they_are_told_to() -> None:
    """For as long as that says: new keys of a strict fleet are admitted then, and how many asked and waited is told."""
    new = ("--policy", "strict", "--warmup", "0", "--windows", "2", "--keys", "30", "--demand", "20")
    unasked, asked = figures(*new)["strict"], figures(*new, "--in-doubt", "ask:25ms")["strict"]
    # Once the hub has answered a node: its first answer is waited for longer.
    late = figures(*new, "--warmup", "1", "--in-doubt", "ask:2.01ms")["strict"]

    assert figures(*new, "--in-doubt", "refuse")["strict"] == unasked
    assert 0.0 == unasked["asked_pct"] < asked["asked_pct"]
    assert asked["falsely_refused_pct"] < unasked["falsely_refused_pct"]
    assert 0.0 == asked["over_max_pct"]
    assert 1.6 <= asked["waited_median_ms"] <= asked["waited_p99_ms"] <= asked["waited_max_ms"] <= 25.0
    assert 0.0 < late["waited_max_ms"] <= 2.01


def test_what_asked_and_waited_has_a_table_of_its_own() -> None:
    """Which fits into eighty columns, is explained, and is not there where nothing asks."""
    said = say("simulate", *SMALL, "--in-doubt", "ask:25ms")
    lines = said.stdout.splitlines()

    assert max(map(len, lines)) <= COLUMNS
    assert any(line.split() == ["policy", "asked", "waited", "median/99th/max"] for line in lines)
    assert "asked: waited for the hub's answer, in % of all requests; waited: " in " ".join(said.stdout.split())
    assert "asked" not in say("simulate", *SMALL).stdout


def test_the_warm_up_is_left_out_of_the_figures() -> None:
    """In which a fleet that has just been started gets to know its keys."""
    crowds = ("--algorithm", "fixed-window", "--pattern", "spray", "--rtt", "200ms", "--windows", "2")
    cold = figures(*crowds, "--policy", "balanced", "--warmup", "0")["balanced"]
    warm = figures(*crowds, "--policy", "balanced", "--warmup", "1")["balanced"]

    assert cold["over_max_pct"] > 1.0
    assert 0.0 == warm["over_max_pct"]


def test_a_bound_that_was_broken_ends_the_command_with_status_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plants a limiter that believes nothing and declares nothing."""
    liar = replace(COMPARED["balanced"], name="strict", reach=COMPARED["naive"].reach)
    monkeypatch.setitem(COMPARED, "strict", liar)
    said = say("simulate", *SMALL, "--policy", "strict", "--pattern", "spray", "--demand", "3")

    assert 1 == said.status
    assert "strict" in said.stdout


def test_a_recording_is_simulated_for_as_many_windows_as_it_has(recording: Path) -> None:
    """The third node alone was asked, and all fits: nothing is above the limit, and nothing refused in warm windows."""
    found = told(
        "simulate", "--nodes", "3", "--limit", "40/10s", "--pattern", str(recording), "--seeds", "1", "--warmup", "1"
    )

    assert {0.0} == {each["over_max_pct"] for each in found["policies"].values()}
    assert 0.0 == found["policies"]["available"]["under_max_pct"]


def test_of_a_recording_no_more_than_the_windows_that_are_asked_for(recording: Path) -> None:
    """Later requests never happen: the bound, for instance, does not rise with their cost."""
    with recording.open("a") as file:
        file.write("45,0,eve,30\n")
    options = ("--limit", "40/10s", "--policy", "balanced", "--seeds", "1", "--pattern", str(recording))
    four = told("simulate", *options, "--windows", "4")["policies"]["balanced"]
    five = told("simulate", *options)["policies"]["balanced"]

    assert 10 + 100 * 8 * 2 / 40 == four["bound_pct"]
    assert 10 + 100 * 8 * 30 / 40 == five["bound_pct"]


def test_a_recording_that_makes_no_sense_is_told_by_its_name(tmp_path: Path, recording: Path) -> None:
    """Not there, without its columns, empty, or with a request that could never be admitted."""
    bare = tmp_path / "bare.csv"
    bare.write_text("when,who\n1,2\n")
    empty = tmp_path / "empty.csv"
    empty.write_text("t_s,node\n")

    assert f"{tmp_path}/none.csv: there is no such file; give the path of a CSV file of requests" == mistake(
        "simulate", "--pattern", f"{tmp_path}/none.csv"
    )
    assert f"{bare}:1: has no column 't_s'; its columns: when, who" == mistake("simulate", "--pattern", str(bare))
    assert f"{empty}: has no requests; add a line for each, below the line of columns" == mistake(
        "simulate", "--pattern", str(empty)
    )
    assert (
        f"{recording}: has a request that costs 2, more than 1/10s (sliding-window) can ever admit; lower the cost, "
        "or raise the limit"
    ) == mistake("simulate", "--pattern", str(recording), "--limit", "1/10s")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--policy", "brave"), "policy='brave': is no policy; known: strict, balanced, available, naive, predictive"),
        (
            ("--pattern", "tsunami"),
            "pattern='tsunami': is neither a CSV file nor a pattern; known patterns: uniform, zipf, single",
        ),
        (("--algorithm", "sundial"), "limit '1000/10s': "),
        (("--algorithm", "gcra", "--slices", "5"), "limit '1000/10s': slices go with sliding-slices, not with gcra"),
        (("--slices", "1001"), "limit '1000/10s': 1001 slices are not between 1 and 1000"),
        (("--fault", "flood@1w+1w"), "fault='flood@1w+1w': unknown kind 'flood'; write cut:NODES"),
        (("--fault", "cut:half@2w"), "fault='cut:half@2w': needs a length: +LENGTH; write cut:NODES"),
        (("--fault", "cut:9@2w+1w"), "fault='cut:9@2w+1w': must apply to 1 to 8 nodes of the fleet, not to 9; write"),
        (("--fault", "down@30w+1w"), "fault='down@30w+1w': begins after the 30 windows that are simulated"),
        (("--warmup", "30"), "warmup=30: leaves none of 30 windows"),
        (("--warmup", "5", "--windows", "5"), "warmup=5: leaves none of 5 windows"),
        (("--rtt", "soon"), "rtt='soon': is not a duration like 2ms or 0.5s"),
        (("--rtt", "-2ms"), "rtt='-2ms': is not a duration like 2ms or 0.5s"),
        (("--rtt", "2s"), "rtt='2s': must be at most 0.8s: a node gives up an exchange after 1 s"),
        (("--sync-interval", "0"), "sync_interval=0.0: must be a number of seconds from 0.001 to 3600"),
        (("--sync-interval", "nan"), "sync_interval=nan: must be a number of seconds from 0.001 to 3600"),
        (("--lease-ttl", "5"), "lease_ttl=5.0: must be a number of seconds from 6 to 86400"),
        (("--lease-ttl", "2", "--sync-interval", "0.1"), "lease_ttl=2.0: must be a number of seconds from 3 to 86400"),
        (("--demand", "0"), "demand=0.0: must be above 0"),
        (("--demand", "nan"), "demand=nan: must be above 0"),
        (("--keys", "0"), "keys=0: must be 1 to"),
        (("--in-doubt", "wait"), "in_doubt='wait': is neither 'refuse' nor a time to ask within, such as 'ask:"),
        (("--in-doubt", "ask:1m"), "in_doubt='ask:1m': is neither 'refuse' nor a time to ask within"),
        (("--in-doubt", "ask:0ms"), "in_doubt='ask:0ms': is not between 0 and 10 s"),
        (
            ("--in-doubt", "ask:2ms"),
            "in_doubt='ask:2ms': is not longer than a round trip of 0.002s, so no request asks",
        ),
        (
            ("--in-doubt", "ask:5ms", "--policy", "naive"),
            "in_doubt='ask:5ms': has an effect only with a policy that grants allowances",
        ),
        (("--cost-max", "0"), "cost_max=0: must be at least 1"),
        (("--cost-max", "1001"), "cost_max=1001: is more than 1000/10s (sliding-window) can ever admit"),
        (("--max-overshoot", "-1"), "max_overshoot=-1.0: must be a number of 0 or more"),
        (("--max-overshoot", "1", "--policy", "strict"), "max_overshoot=1.0: is for balanced, which is not simulated"),
        (("--plot", "run.pdf"), "plot='run.pdf': must end in .png or .html"),
        (("--plot", "nowhere/run.png"), "plot='nowhere/run.png': cannot be written: there is no such directory"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_mistake_is_told_in_one_sentence_before_anything_is_simulated(
    options: tuple[str, ...], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names the setting, and says what would do."""
    monkeypatch.setattr("reconverge.cli.simulate.run", lambda *_, **__: pytest.fail("it was simulated"))

    assert mistake("simulate", *options).startswith(sentence)


@pytest.mark.parametrize("options", [("--nodes", "0"), ("--seeds", "0"), ("--windows", "x"), ("--bogus",)], ids=str)
def test_an_option_that_cannot_be_read_is_a_mistake_too(options: tuple[str, ...]) -> None:
    """Every command reports it so: status 2, the option's name, and no traceback."""
    said = say("simulate", *options)

    assert 2 == said.status
    assert options[0] in said.stderr
    assert "Traceback" not in said.all


def test_the_table_fits_into_eighty_columns_and_is_explained() -> None:
    """A row for each policy, with its figures in full, and what the columns mean below."""
    said = say("simulate", *SMALL, "--fault", "cut:half@1w+2w")
    lines = said.stdout.splitlines()
    (head,) = (line for line in lines if "policy" in line)

    assert max(map(len, lines)) <= COLUMNS
    assert ["over", "mean/99th/max", "bound", "broken", "under", "mean/max", "refused", "messages"] == head.split()[1:]
    assert {"strict": "0", "balanced": "18", "available": "300", "naive": "none", "predictive": "none"} == (
        {words[0]: words[6] for words in map(str.split, lines) if words and words[0] in COMPARED}
    )
    assert "…" not in said.stdout
    for word in (
        "4 nodes share 50/10s",
        "over, ",
        "bound, ",
        "under, ",
        "refused: falsely, over the whole run",
        "broken: ",
        "messages: ",
    ):
        assert word in " ".join(said.stdout.split())


def test_help_tells_every_pattern_policy_and_algorithm_in_eighty_columns() -> None:
    """Nothing is cut off."""
    said = say("simulate", "--help")
    text = " ".join(said.stdout.replace("│", " ").split())

    assert max(map(len, said.stdout.splitlines())) <= COLUMNS
    assert "…" not in said.stdout
    for word in (
        "uniform, zipf",
        "batches",
        *COMPARED,
        "token-bucket",
        "sliding-slices",
        "t_s,node[,key][,cost]",
        "crash:1@3w+1w",
    ):
        assert word in text


@pytest.mark.slow
def test_a_plot_is_a_picture(tmp_path: Path) -> None:
    """All policies are in it; the figures are printed all the same."""
    path = tmp_path / "run.png"
    said = say("simulate", *SMALL, "--plot", str(path), "--fault", "cut:half@1w+1w")

    assert 0 == said.status
    assert "naive" in said.stdout
    assert is_png(path)


def test_a_plot_in_a_page_needs_no_other_file(tmp_path: Path) -> None:
    """Picture, figures and what they mean in one."""
    path = tmp_path / "run.html"
    say("simulate", *SMALL, "--keys", "3", "--plot", str(path))
    page = path.read_text()

    assert [] == needs_other_files(page)
    assert "data:image/svg+xml;base64," in page
    assert "4 nodes share 50/10s (sliding-window), key &#x27;key-0&#x27;, seed 0" in page
    assert all(f"<td>{name}</td>" in page for name in COMPARED)
    assert "under, how much less was admitted than by one central limiter" in page


def test_of_several_keys_the_busiest_is_drawn(recording: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A limit is for one key: what was asked for and admitted of the others would not compare with it."""
    drawn: list[Any] = []
    monkeypatch.setattr("reconverge.cli.shared.picture.save_png", lambda chart, path: drawn.append(chart))
    plot = ("--plot", str(tmp_path / "run.png"))
    say("simulate", "--limit", "200/10s", "--policy", "naive", "--seeds", "1", "--pattern", str(recording), *plot)
    (chart,) = drawn
    (naive,) = chart.series

    assert "key 'bob'" in chart.title
    assert [30, 30, 30, 30] == chart.asked  # four of five requests, whose costs are 1 and 2 in turns
    assert [30, 30, 30, 30] == naive.admitted
    assert [0.0, 10.0, 20.0, 30.0] == chart.moments_s


def test_every_policy_is_drawn_in_a_colour_of_its_own_to_the_end_of_the_last_window(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """There are as many colours as policies, and four windows of ten seconds end after forty."""
    drawn: list[Any] = []
    monkeypatch.setattr("reconverge.cli.shared.picture.save_png", lambda chart, path: drawn.append(chart))
    say("simulate", *SMALL, "--plot", str(tmp_path / "run.png"))
    from matplotlib.figure import Figure  # noqa: PLC0415  # it takes a while

    figure = Figure()
    drawn[0].draw_on(figure)
    lines: dict[str, Any] = {str(line.get_label()): line for line in figure.axes[0].get_lines()}
    admitted = [lines[f"admitted by {name}"] for name in COMPARED]

    assert len(COMPARED) == len({line.get_color() for line in admitted})
    assert {40.0} == {line.get_xdata()[-1] for line in admitted}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--algorithm", "fixed-window", "--align", "first-hit"), "(fixed-window, first-hit)"),
        (("--algorithm", "gcra", "--initial", "20", "--refill", "interval"), "(gcra, initial 20, refill interval)"),
        (
            (
                *("--limit", "50/day", "--sync-interval", "600", "--algorithm", "fixed-window"),
                *("--align", "calendar", "--timezone", "Europe/Berlin"),
            ),
            "(fixed-window, calendar of Europe/Berlin)",
        ),
    ],
)
def test_what_is_unusual_about_the_limit_is_simulated_and_said(options: tuple[str, ...], said: str) -> None:
    """And every bound is kept, as an error status would tell otherwise."""
    run = say("simulate", *SMALL, "--policy", "strict", *options)

    assert 0 == run.status
    assert said in " ".join(run.stdout.split())


def test_an_alignment_that_does_not_go_is_told_in_a_sentence() -> None:
    """That of the limit itself."""
    assert "goes with fixed-window alone" in mistake("simulate", *SMALL, "--align", "calendar")
