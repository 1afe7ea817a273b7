"""Goals are told whether they are met or not, and whoever runs them sees it in the status."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from reconverge import Limit
from reconverge.clock import SECOND_NS
from reconverge.simulation import Experiment, Figures, Fleet, Traffic, goals
from reconverge.simulation.goals import chapters
from reconverge.simulation.studies.chapters import (
    NEVER_OVER,
    POLICIES,
    SHOWN,
    Chapter,
    Goal,
    page,
    summary,
    together,
    unmet,
)
from reconverge.simulation.studies.figures import commit_of

NONE = Figures(
    over_mean_pct=0.0,
    over_p99_pct=0.0,
    over_max_pct=0.0,
    under_mean_pct=0.0,
    under_max_pct=0.0,
    messages_per_node_window=0.0,
    bound_pct=0.0,
    bound_violations=0,
    admitted_pct=100.0,
    falsely_refused_pct=0.0,
)
SMALL = Experiment(Fleet(2, Limit(20, 1.0, algorithm="fixed-window"), SECOND_NS // 10), Traffic("uniform", 3.0), 3, 1)
REACHED = Goal("strict", "over_max_pct", 0.0)
OUT_OF_REACH = Goal("balanced", "messages_per_node_window", 0.5)
"""Nobody converges without exchanging."""


def everybody(**figures: float) -> dict[str, Figures]:
    """A situation in which all policies do equally well."""
    return dict.fromkeys(POLICIES, replace(NONE, **figures))  # type: ignore[arg-type]


def plant(monkeypatch: pytest.MonkeyPatch, *planted: Chapter) -> None:
    """Puts these chapters in place of the real ones, which take minutes."""
    monkeypatch.setattr(goals, "chapters", lambda: list(planted))


def test_a_chapter_is_the_mean_of_its_situations_means_and_the_worst_of_their_worst() -> None:
    """The goals of the study are meant so."""
    calm = everybody(over_mean_pct=1.0, over_max_pct=2.0, under_mean_pct=0.0, bound_violations=1)
    wild = everybody(over_mean_pct=2.0, over_max_pct=9.0, under_mean_pct=3.0, under_max_pct=4.0, bound_violations=2)
    figures = together([calm, wild])["balanced"]

    assert (1.5, 9.0) == (figures.over_mean_pct, figures.over_max_pct)
    assert (1.5, 4.0) == (figures.under_mean_pct, figures.under_max_pct)
    assert 3 == figures.bound_violations


def test_messages_of_a_chapter_are_those_of_its_mean_situation() -> None:
    """The messages of a fleet depend on the pattern; a goal is about all of them."""
    situations = [everybody(messages_per_node_window=10.0), everybody(messages_per_node_window=13.0)]

    assert 11.5 == together(situations)["naive"].messages_per_node_window


def test_a_goal_is_met_up_to_its_figure_and_not_beyond() -> None:
    """At most means at most."""
    goal = Goal("balanced", "over_mean_pct", 0.5)

    assert goal.met_by(everybody(over_mean_pct=0.5))
    assert not goal.met_by(everybody(over_mean_pct=0.501))


def test_a_goal_is_for_its_policy_alone() -> None:
    """The others' figures are of no account."""
    figures = everybody() | {"naive": replace(NONE, over_max_pct=100.0)}

    assert REACHED.met_by(figures)
    assert not replace(REACHED, policy="naive").met_by(figures)


def test_goals_that_are_not_met_are_told_in_words() -> None:
    """Which policy, which figure, and what it should have been."""
    chapter = Chapter("planted", {}, (REACHED, Goal("balanced", "under_mean_pct", 0.5)))

    assert [] == unmet(chapter, {"calm": everybody()})
    assert ["balanced: under mean ≤ 0.5"] == unmet(chapter, {"calm": everybody(under_mean_pct=0.6)})


def test_a_page_has_a_row_for_each_situation_and_one_for_all_of_them() -> None:
    """With as many cells as its head, and the goals below."""
    chapter = Chapter("Planted", {"calm": SMALL, "wild": SMALL}, (REACHED,))
    lines = page([(chapter, {"calm": everybody(), "wild": everybody(over_max_pct=7.0)})]).splitlines()
    rows = [line for line in lines if line.startswith("|")]

    assert "# Figures" == lines[0]
    assert "## Planted" in lines
    assert ["", "---", "calm", "wild", "**all**"] == [row.split("|")[1].strip() for row in rows]
    assert {2 + len(POLICIES)} == {len(row.strip("|").split("|")) for row in rows}
    assert "0.00/7.0 [0.00]" in rows[-1]
    assert "Goals: strict: over max ≤ 0. NOT MET: strict: over max ≤ 0" in lines[-1]


def test_a_summary_has_a_row_for_each_chapter() -> None:
    """With the mean of its means and the worst of its worst."""
    chapter = Chapter("Planted", {"calm": SMALL, "wild": SMALL}, (NEVER_OVER, Goal("balanced", "over_max_pct", 9.0)))
    lines = summary([(chapter, {"calm": everybody(), "wild": everybody(over_mean_pct=1.0)})]).splitlines()
    shown = " | ".join(["0.50/0.0 [0.00]"] * len(SHOWN))

    assert f"| Planted | {shown} | 0.0 |" in lines
    assert "All goals are met." == lines[-1]


def test_a_summary_shows_situations_that_differ_in_kind_one_by_one() -> None:
    """And names the chapter whose goals are not met."""
    chapter = Chapter("Planted", {"calm": SMALL, "wild": SMALL}, (REACHED,), apart=True)
    lines = summary([(chapter, {"calm": everybody(), "wild": everybody(over_max_pct=7.0)})]).splitlines()

    assert ["| Planted: calm", "| Planted: wild"] == [line[:15] for line in lines if line.startswith("| Planted")]
    assert "Planted: NOT MET: strict: over max ≤ 0" == lines[-1]


def test_a_chapter_of_one_situation_needs_no_row_for_all() -> None:
    """It would say the same again."""
    text = page([(Chapter("Planted", {"calm": SMALL}, (REACHED,)), {"calm": everybody()})])

    assert "**all**" not in text
    assert "All met." in text


def test_a_page_says_which_commit_it_was_made_at_if_that_is_known() -> None:
    """Under its title; otherwise it says nothing about that."""
    found = [(Chapter("Planted", {"calm": SMALL}, (REACHED,)), {"calm": everybody()})]

    assert ["# Figures", "", "Last made at commit 1a2b3c4, 2026-11-21.", ""] == page(
        found, "1a2b3c4, 2026-11-21"
    ).splitlines()[:4]
    assert "Last made" not in page(found)


def test_the_command_prints_the_page_and_ends_well_when_all_is_reached(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page goes to the output, for a file, and the summary to the terminal."""
    plant(monkeypatch, Chapter("Planted", {"calm": SMALL}, (REACHED,), seeds=1))

    status = goals.main(["--processes", "1"])
    out, err = capsys.readouterr()

    assert 0 == status
    assert "| Planted |" in out
    assert not commit_of() or f"Last made at commit {commit_of()}." in out
    assert "1 situations, 0 goals not met, 0 bounds broken" in err


def test_a_goal_that_is_not_met_ends_the_command_with_status_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """So that a script notices."""
    plant(monkeypatch, Chapter("Planted", {"calm": SMALL}, (REACHED, OUT_OF_REACH), seeds=1))

    status = goals.main(["--processes", "1"])
    out, err = capsys.readouterr()

    assert 1 == status
    assert "NOT MET: balanced: messages per node window ≤ 0.5" in out
    assert "1 goals not met, 0 bounds broken" in err


def test_a_bound_that_was_broken_ends_the_command_with_status_1_whatever_the_goals(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A promise is more than a goal."""
    plant(monkeypatch, Chapter("Planted", {"calm": SMALL}, (REACHED,), seeds=1))
    monkeypatch.setattr(goals, "_figures_of", lambda what: everybody(bound_violations=1))

    assert 1 == goals.main(["--processes", "1"])
    assert f"0 goals not met, {len(POLICIES)} bounds broken" in capsys.readouterr().err


def test_only_the_chapters_that_are_asked_for_are_tried(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And a name that fits none is a mistake, which tells the names."""
    plant(monkeypatch, Chapter("Calm", {"calm": SMALL}, (), seeds=1), Chapter("Wild", {"wild": SMALL}, (), seeds=1))
    monkeypatch.setattr(goals, "_figures_of", lambda what: everybody())

    assert 0 == goals.main(["--only", "Wild", "--processes", "1"])
    assert "## Calm" not in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        goals.main(["--only", "tame"])
    assert 2 == ended.value.code
    assert "no chapter's name contains 'tame'; there are: Calm; Wild" in capsys.readouterr().err


def test_every_goal_is_about_a_figure_of_a_policy_that_is_simulated() -> None:
    """Nothing is misspelt, and strict is never to be above its limit, in any chapter."""
    figures = {field.name for field in fields(Figures)}

    for chapter in chapters():
        assert {goal.figure for goal in chapter.goals} <= figures
        assert {goal.policy for goal in chapter.goals} <= set(POLICIES)
        assert NEVER_OVER in chapter.goals


def test_chapters_and_their_situations_have_names_of_their_own() -> None:
    """A figure can be found by them."""
    names = [chapter.name for chapter in chapters()]

    assert len(set(names)) == len(names)
    assert all(chapter.situations for chapter in chapters())


def test_a_chapter_about_doubt_tells_false_refusals_and_what_asked() -> None:
    """In place of what each window admitted; and all of its situations together, as means and as the longest wait."""
    few = everybody(falsely_refused_pct=2.0, asked_pct=30.0, waited_median_ms=2.0, waited_max_ms=4.0)
    many = everybody(
        falsely_refused_pct=4.0, asked_pct=50.0, waited_median_ms=2.0, waited_p99_ms=3.0, waited_max_ms=3.5
    )
    chapter = Chapter("Small", {}, (), in_doubt=True)
    lines = page([(chapter, {"few": few, "many": many})]).splitlines()

    assert "| few | 2.00/0.0 | 2.00/0.0 | 30.0 | 2.0/0.0/4.0 | 0.0 |" in lines
    assert "| **all** | 3.00/0.0 | 3.00/0.0 | 40.0 | 2.0/3.0/4.0 | 0.0 |" in lines
