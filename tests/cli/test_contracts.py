"""Goal: files of contracts are checked, compared and made by commands whose status a script can go by."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
import yaml

from reconverge.contracts.document import checked
from reconverge.contracts.format import schema
from reconverge.integrations.contracts.rule_files import LANGUAGES, read_contracts
from tests.support.broken_contracts import TEXTS, WHOLE
from tests.support.commands.checked import Said, said_by

run = partial(said_by, "contracts")

PLANS = "plans:\n  free:\n    limits:\n      api: 50/s\ncustomers:\n  ada: free\n"
ENVOY = "domain: d\ndescriptors:\n- {key: user, detailed_metric: true, rate_limit: {unit: day, requests_per_unit: 5}}\n"
XML = "<RefillPolicy><Capacity>20</Capacity><SamplingPeriod>HOUR</SamplingPeriod></RefillPolicy>"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file of contracts."""
    path = tmp_path / "plans.yaml"
    path.write_text(PLANS)
    return path


def test_a_good_file_is_said_to_be_one(file: Path) -> None:
    """With what is in it."""
    assert Said(0, "plans.yaml: plans: 1, customers: 1\n", "") == run("validate", file)


def test_a_wrong_file_is_told_with_its_line_and_field(file: Path) -> None:
    """And ends with status 2."""
    file.write_text(PLANS.replace("50/s", "50/x"))
    said = run("validate", file)

    assert (2, "") == (said.status, said.stdout)
    assert said.stderr.startswith("plans.yaml, line 4: plans.free.limits.api.limit: unknown unit 'x'")


@pytest.mark.slow
@pytest.mark.parametrize("command", ["validate", "export", "diff", "import"])
@pytest.mark.parametrize("language", LANGUAGES)
def test_no_command_has_a_traceback_for_a_broken_file(command: str, language: str, file: Path, tmp_path: Path) -> None:
    """Nor writes anything."""
    wrong = tmp_path / f"wrong.{language}"
    more: dict[str, list[object]] = {
        "export": ["--to", "json"],
        "diff": [file],
        "import": ["--from", "envoy", "-o", tmp_path / "out.yaml"],
    }
    for text in TEXTS[language]:
        wrong.write_text(text)
        said = run(command, wrong, *more.get(command, []))

        assert (2, "") == (said.status, said.stdout)
        assert said.stderr
        assert {file, wrong} == set(tmp_path.iterdir())


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_file_is_exported_to_every_language(language: str, tmp_path: Path) -> None:
    """The command prints a file with the same content."""
    source, target = tmp_path / "plans.json", tmp_path / f"exported.{language}"
    source.write_text(json.dumps(WHOLE))
    target.write_text(run("export", source, "--to", language).stdout)

    assert checked(WHOLE) == read_contracts(target)
    assert Said(0, "", "") == run("diff", source, target)


def test_an_unknown_language_is_told(file: Path) -> None:
    """With status 2."""
    said = run("export", file, "--to", "tonl")

    assert (2, "") == (said.status, said.stdout)
    assert "did you mean 'toml'?" in said.stderr


def test_a_difference_ends_with_status_one(file: Path, tmp_path: Path) -> None:
    """Added, removed and changed parts are printed, a line each."""
    other = tmp_path / "other.toml"
    other.write_text("[plans.free.limits]\napi = '60/s'\nusers = '5/s'\n[customers]\nbob = 'free'\n")
    lines = [
        "~ plans.free.limits.api: 50/1s -> 60/1s",
        "+ plans.free.limits.users: 5/1s",
        "- customers.ada: {plan: free}",
        "+ customers.bob: {plan: free}",
    ]

    assert Said(1, "".join(f"{line}\n" for line in lines), "") == run("diff", file, other)


def test_another_way_to_say_the_same_is_no_difference(file: Path, tmp_path: Path) -> None:
    """Status 0, and not a word."""
    other = tmp_path / "other.json"
    other.write_text(
        '{"plans": {"free": {"limits": {"api": {"limit": "50/PT1S"}}}}, "customers": {"ada": {"plan": "free"}}}'
    )

    assert Said(0, "", "") == run("diff", file, other)


def test_an_import_prints_contracts_and_tells_its_remarks_beside_them(tmp_path: Path) -> None:
    """So that the output is a file."""
    envoy = tmp_path / "envoy.yaml"
    envoy.write_text(ENVOY)
    said = run("import", "--from", "envoy", envoy)

    assert 0 == said.status
    assert ["default"] == list(checked(yaml.safe_load(said.stdout)).plans)
    assert "envoy.yaml, line 3: descriptors.0.detailed_metric: is left out" in said.stderr


def test_an_import_writes_a_new_file_in_the_language_of_its_name(tmp_path: Path) -> None:
    """Which is never one that is there already."""
    source, out = tmp_path / "contract.xml", tmp_path / "contract.toml"
    source.write_text(XML)
    first = run("import", "--from", "xml", source, "-o", out)
    before = out.read_bytes()
    second = run("import", "--from", "xml", source.rename(tmp_path / "other.xml"), "--out", out)

    assert (0, "") == (first.status, first.stdout)
    assert ["default"] == list(read_contracts(out).plans)
    assert 2 == second.status
    assert "is there already" in second.stderr
    assert before == out.read_bytes()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--from", "yaml"), "is an unknown format; known: envoy, xml"),
        (("--from", "xml", "--customer", "user"), "goes with --from envoy"),
        (("--from", "envoy", "--customer", "usr"), "did you mean 'user'?"),
        (("--from", "envoy", "-o", "out.txt"), "ends in none of"),
        (("--from", "envoy", "-o", "none/out.yaml"), "cannot be written"),
    ],
)
def test_an_import_that_cannot_be_is_told(words: tuple[str, ...], problem: str, tmp_path: Path) -> None:
    """With status 2."""
    source = tmp_path / "source.yaml"
    source.write_text(ENVOY)
    said = run("import", source, *words)

    assert (2, "") == (said.status, said.stdout)
    assert problem in said.stderr


def test_the_schema_is_printed() -> None:
    """The command prints JSON."""
    said = run("schema")

    assert (0, schema()) == (said.status, json.loads(said.stdout))
