"""`reconverge demo`, with shorter phases: what it shows, says and leaves."""

from __future__ import annotations

import json
import os
import re
import signal
import struct
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner, Result

from reconverge.cli import demo
from reconverge.cli.app import app
from reconverge.cli.demo import NODES
from reconverge.errors import InvalidSetting
from tests.support.programs.process import PROCESS_S_MAX, ROOT
from tests.support.waiting import eventually

MISTAKE = 2


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """One demonstration in an empty directory, and what was printed."""
    directory = tmp_path_factory.mktemp("empty")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(directory)
        patch.setattr(demo, "PHASE_S", 3.0)
        return directory, CliRunner().invoke(app, ["demo", "--json"])


def figures(result: Result) -> dict[str, object]:
    assert result.exit_code == 0, result.output
    printed: dict[str, object] = json.loads(result.stdout)
    return printed


def test_all_promises_are_kept_and_naive_is_visibly_worse(shown: tuple[Path, Result]) -> None:
    """The verdict of the whole demonstration: in the cut, naive admits what balanced does not."""
    printed = figures(shown[1])
    policies, crowd = printed["policies"], printed["crowd"]
    assert isinstance(policies, dict)
    assert isinstance(crowd, dict)

    assert 0 == policies["balanced"]["bound_violations"]
    assert all(each["hub_total_equals_admitted"] for each in policies.values())
    fullest = {name: phases["two nodes cut off"] for name, phases in crowd["fullest_window"].items()}
    assert fullest["balanced"] <= crowd["bound"]["balanced"] < fullest["naive"]


def test_the_crowd_is_told_window_by_window(shown: tuple[Path, Result]) -> None:
    """Every window of the run but the last, which was cut short."""
    crowd = figures(shown[1])["crowd"]
    assert isinstance(crowd, dict)

    assert 8 <= len(crowd["windows"]) <= 10
    assert all(window["asked"] > crowd["quota"] for window in crowd["windows"][1:-1])


def test_what_is_admitted_in_a_usual_window_stands_beside_what_can_be(shown: tuple[Path, Result]) -> None:
    """Four limiters with a whole part each miss about four of 60, and balanced hardly more; one limiter one or two."""
    crowd = figures(shown[1])["crowd"]
    assert isinstance(crowd, dict)
    usual = crowd["usual_window"]["healthy"]

    assert usual["one for all"] in (58, 59), "on a busy machine the requests come unevenly"
    assert usual["a part each"] <= 56
    assert usual["a part each"] - 2 <= usual["balanced"] <= usual["one for all"]


def test_the_picture_is_a_png_of_a_sensible_size(shown: tuple[Path, Result]) -> None:
    """Large enough to be read, and not the size of a poster."""
    header = (shown[0] / "reconverge-demo" / "admitted.png").read_bytes()[:24]
    width, height = struct.unpack(">II", header[16:24])

    assert b"\x89PNG\r\n\x1a\n" == header[:8]
    assert 800 <= width <= 2000
    assert 400 <= height <= 1200


class _References(HTMLParser):
    """Collects what a page refers to, and which elements it leaves open."""

    def __init__(self) -> None:
        super().__init__()
        self.references: list[str] = []
        self.open: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Remember the element, unless it has no end."""
        self.references += [value for name, value in attrs if name in ("src", "href") and value]
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Elements end in the order in which they began."""
        assert tag == self.open.pop()

    def handle_data(self, data: str) -> None:
        """Collect the words."""
        self.words.append(data)


def test_the_page_needs_no_other_file_and_says_what_it_means(shown: tuple[Path, Result]) -> None:
    """It can be mailed to somebody."""
    page = _References()
    page.feed((shown[0] / "reconverge-demo" / "admitted.html").read_text(encoding="utf-8"))

    assert [] == page.open
    assert all(reference.startswith("data:") for reference in page.references)
    assert "With two of four nodes cut off" in " ".join(page.words)


def test_nothing_else_is_left_in_the_directory(shown: tuple[Path, Result]) -> None:
    """Two files, where it says."""
    assert ["reconverge-demo"] == [path.name for path in shown[0].iterdir()]
    assert {"admitted.html", "admitted.png"} == {path.name for path in (shown[0] / "reconverge-demo").iterdir()}


def shown_without(room: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Result:
    """Runs a short demonstration in an empty directory, where that room of the commands finds no package."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "PHASE_S", 3.0)
    monkeypatch.setattr(f"reconverge.cli.{room}.find_spec", lambda _name: None)
    return CliRunner().invoke(app, ["demo"], env={"COLUMNS": "400"})


def test_without_what_draws_pictures_the_figures_are_shown_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The extra `cli` is enough; one line says what a picture takes, and no directory is made."""
    shown = shown_without("shared.picture", tmp_path, monkeypatch)

    assert 0 == shown.exit_code, shown.output
    assert 1 == shown.output.count("No picture is drawn: a picture needs the package 'matplotlib'; install it with")
    assert "worst window of a known key" in shown.output
    assert [] == list(tmp_path.iterdir())


def test_it_ends_with_the_address_of_its_console(shown: tuple[Path, Result]) -> None:
    """Which was open while the fleet ran; how one is kept open is said, too."""
    last = shown[1].stderr.strip().splitlines()[-1]

    assert last.startswith("The console of this fleet was at http://127.0.0.1:")
    assert last.endswith("; reconverge demo --console keeps one open.")


def test_without_what_serves_a_console_the_demonstration_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line says what a console takes; when one was asked for, nothing runs without it."""
    shown = shown_without("console", tmp_path, monkeypatch)
    refused = CliRunner().invoke(app, ["demo", "--console"])

    assert 0 == shown.exit_code, shown.output
    needs = "the console of the demo's fleet needs the package 'starlette'; install it with"
    assert 1 == shown.output.count(f"No console is open: {needs}")
    assert "http://127" not in shown.output
    assert needs in str(refused.exception)


def test_a_console_that_is_kept_open_shows_a_fleet_that_goes_on(tmp_path: Path) -> None:
    """Four nodes, after the result was told; it ends when it is interrupted."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.programs.short_demo", "--console"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "400"},
        text=True,
        stdout=subprocess.PIPE,
    ) as process:
        try:
            assert process.stdout is not None
            last = next(line for line in process.stdout if line.startswith("The fleet goes on"))
            found = re.search(r"(http://[0-9.:]+/) \(token: (.+)\)", last)
            assert found is not None
            headers = {"authorization": f"Bearer {found[2]}"}

            def nodes() -> int:
                view = httpx.get(f"{found[1]}state", headers=headers, timeout=10.0).json()
                return sum(each["state"] != "silent" for each in view["nodes"])

            eventually(lambda: nodes() >= NODES, "the console to show the fleet", 60.0)
            process.send_signal(signal.SIGINT)
            assert 0 == process.wait(PROCESS_S_MAX)
        finally:
            process.kill()


def test_requests_ask_in_doubt_when_they_are_told_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours do, and that is told; naive has nothing to ask."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "PHASE_S", 2.0)
    result = CliRunner().invoke(app, ["demo", "--json", "--in-doubt", "ask:25ms"])
    found = json.loads(result.stdout)["policies"]

    assert 0 == result.exit_code
    assert 0.0 == found["naive"]["asked_pct"] < found["balanced"]["asked_pct"]
    assert found["balanced"]["waited_max_ms"] > 0.0


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["lenient"], "is no policy; known: strict, balanced"),
        # It believes the last merged total, so there is nothing that it could ask.
        (
            ["naive", "--in-doubt", "ask:25ms"],
            "has an effect only with a policy that grants allowances; add one with --policy",
        ),
    ],
    ids=["an unknown policy", "asking for naive"],
)
def test_a_mistake_is_told_before_anything_runs(
    options: list[str], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing is written."""
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["demo", "--policy", *options])

    assert isinstance(result.exception, InvalidSetting)
    assert problem in str(result.exception)
    assert [] == list(tmp_path.iterdir())


def test_the_recording_is_the_one_of_the_examples() -> None:
    """The package carries it, so that the demonstration also runs where there is no clone."""
    carried = Path(demo.__file__).parent / "access-2015.csv.gz"
    shown = Path(__file__).parents[2] / "examples" / "data" / "access-2015.csv.gz"

    assert shown.read_bytes() == carried.read_bytes()
