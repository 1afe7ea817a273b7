"""Goal: a file of contracts is read in three languages alike, or is told to be wrong by its line and field.

Method: drawn documents in every language; hundreds of broken files, made of one document with all fields.
"""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given

from reconverge import InvalidSetting, Limit
from reconverge.contracts.document import checked
from reconverge.contracts.terms import terms_of
from reconverge.contracts.writing import table_of
from reconverge.integrations.config.positions import VALUES_MAX, InvalidConfiguration
from reconverge.integrations.contracts import rule_files
from reconverge.integrations.contracts.rule_files import LANGUAGES, read_contracts, written_contracts
from tests.support.broken_contracts import WHOLE, Broken, broken, put
from tests.support.drawn_contracts import Table, documents

BROKEN = list(broken())
MISTAKE = {
    "yaml": "plans:\n  free:\n    limits:\n      api: 5/s\n      users:\n        limit: 5/s\n        slices: five\n",
    "toml": "[plans.free.limits]\napi = '5/s'\n\n\n\n[plans.free.limits.users]\nslices = 'five'\nlimit = '5/s'\n",
    "json": '{\n\t"plans": {\n\t\t"free": {\n\t\t\t"limits": {\n\t\t\t\t"api": "5/s",\n\t\t\t\t"users": {\n'
    '\t\t\t\t\t"slices": "five", "limit": "5/s"}}}}}',
}
"""In line 7 each. JSON may be indented by tabs."""


def file(directory: Path, name: str, text: str | bytes) -> Path:
    """A file with that text."""
    path = directory / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.slow
@given(table=documents())
def test_a_document_is_the_same_in_every_language(table: Table, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Written, and read back."""
    document = checked(table)
    directory = tmp_path_factory.mktemp("files")
    for language in LANGUAGES:
        text = written_contracts(document, language)

        assert document == read_contracts(file(directory, f"plans.{language}", text))


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_field_can_be_said_in_every_language(language: str, tmp_path: Path) -> None:
    """All that a limit can say, and all that a customer can have."""
    document = checked(WHOLE)
    limits = [each.limit for each in document.plans["free"].limits.values()]
    usual = Limit(1, 1)
    said = {
        each.name
        for each in fields(Limit)
        for limit in limits
        if getattr(limit, each.name) != getattr(usual, each.name)
    }

    assert document == read_contracts(file(tmp_path, f"plans.{language}", written_contracts(document, language)))
    assert {each.name for each in fields(Limit)} - {"name", "warmup"} == said  # a limit string says the warmup


def test_what_editors_write_around_a_file_says_nothing(tmp_path: Path) -> None:
    """A mark at the beginning, ends of lines of other systems, comments, and an anchor that is referred to."""
    text = "# plans\nx: 1\nplans:\n  free: &free\n    limits: {api: 5/s}\n  pro: *free\n".replace("x: 1\n", "")
    written = b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode()

    assert ["free", "pro"] == list(read_contracts(file(tmp_path, "plans.yml", written)).plans)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_mistake_is_told_by_its_line_and_field(language: str, tmp_path: Path) -> None:
    """In the same words, whatever the language."""
    with pytest.raises(InvalidConfiguration) as caught:
        read_contracts(file(tmp_path, f"plans.{language}", MISTAKE[language]))

    assert f"plans.{language}, line 7: plans.free.limits.users.slices: must be a whole number, not 'five'" == str(
        caught.value
    )


def test_a_mistake_in_a_list_is_told_by_its_place(tmp_path: Path) -> None:
    """Of the second former limit, in its line."""
    text = "plans: {free: {limits: {api: 5/s}}}\ncustomers:\n  ada:\n    plan: free\n    former:\n" + (
        "    - name: api\n      limit: 5/s\n      until: 2027-01-01\n" * 2
    )
    with pytest.raises(InvalidConfiguration) as caught:
        read_contracts(file(tmp_path, "plans.yaml", text + "      by: a-b\n"))

    assert (12, "customers.ada.former.1.by") == (caught.value.line, caught.value.field)


def test_there_are_hundreds_of_broken_files() -> None:
    """In every language, by every field."""
    assert len(BROKEN) > 600
    assert {f"plans.{language}" for language in LANGUAGES} == {each.name for each in BROKEN}


@pytest.mark.slow
@pytest.mark.parametrize("each", BROKEN, ids=lambda each: each.case)
def test_a_broken_file_is_one_mistake_with_its_line(each: Broken, tmp_path: Path) -> None:
    """At or below the field that is wrong, in one short line that commands no terminal; the file is as it was."""
    path = file(tmp_path, each.name, each.written)
    with pytest.raises(InvalidConfiguration) as caught:
        read_contracts(path)
    error, lines = caught.value, each.written.decode("utf-8", "replace").splitlines()

    assert error.line is not None
    assert 1 <= error.line <= len(lines) + 1
    assert error.field == each.field or error.field.startswith(each.field and f"{each.field}.")
    assert str(error).startswith(f"{each.name}, line {error.line}: ")
    assert re.sub("\n  .*", "", str(error)).isprintable()
    assert len(str(error)) < 1500
    assert [path] == list(tmp_path.iterdir())
    assert each.written == path.read_bytes()


@pytest.mark.parametrize("language", ["yaml", "json"])
@pytest.mark.parametrize(
    "path", ["plans.free.limits.users.soft", "customers.ada.switches.api", "customers.ada.former.0.until"]
)
def test_the_line_is_that_of_the_field(language: str, path: str, tmp_path: Path) -> None:
    """Wherever in the file that is."""
    text = next(each.written for each in BROKEN if each.case == f"{language}: {path} is list").decode()
    with pytest.raises(InvalidConfiguration) as caught:
        read_contracts(file(tmp_path, f"plans.{language}", text))

    assert caught.value.line is not None
    assert path.rpartition(".")[2] in text.splitlines()[caught.value.line - 1]


def test_a_file_of_few_lines_that_stands_for_billions_is_not_built(tmp_path: Path) -> None:
    """It is refused by the count of what it stands for, where the count passes the most."""
    (bomb,) = (each for each in BROKEN if each.name.endswith("yaml") and each.written.endswith(b"plans: *j\n"))
    with pytest.raises(InvalidConfiguration, match="references make more than") as caught:
        read_contracts(file(tmp_path, bomb.name, bomb.written))

    assert caught.value.line is not None
    assert 10**caught.value.line > VALUES_MAX


@pytest.mark.parametrize(
    ("name", "problem"),
    [("plans.txt", "ends in none of"), ("none.yaml", "cannot be read"), ("directory.yaml", "it is not a regular file")],
)
def test_what_is_no_file_is_told(name: str, problem: str, tmp_path: Path) -> None:
    """With its path."""
    (tmp_path / "directory.yaml").mkdir()
    with pytest.raises(InvalidConfiguration, match=problem) as caught:
        read_contracts(tmp_path / name)

    assert str(tmp_path / name) == caught.value.source


def test_a_file_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of as many characters; one more is told."""
    text = "plans: {free: {limits: {api: 5/s}}} # é"
    path = file(tmp_path, "plans.yaml", text)
    monkeypatch.setattr(rule_files, "CHARACTERS_MAX", len(text))
    assert ["free"] == list(read_contracts(path).plans)
    monkeypatch.setattr(rule_files, "CHARACTERS_MAX", len(text) - 1)

    with pytest.raises(InvalidConfiguration, match="has more than"):
        read_contracts(path)


def test_half_a_character_is_not_written_in_toml(tmp_path: Path) -> None:
    """TOML is Unicode; the other languages have a way to write it."""
    document = checked(put("customers.\ud800", "free"))
    with pytest.raises(InvalidSetting, match="half a character; use json"):
        written_contracts(document, "toml")

    for language in ("json", "yaml"):
        assert document == read_contracts(file(tmp_path, f"plans.{language}", written_contracts(document, language)))


def test_a_document_of_one_plan_is_written_as_people_would(tmp_path: Path) -> None:
    """A limit of which nothing else is said is its limit string."""
    document = checked({"plans": {"free": {"limits": {"api": "50/s"}}}, "customers": {"ada": "free"}})

    assert '[plans.free.limits]\napi = "50/1s"\n' in written_contracts(document, "toml")
    assert table_of(document) == table_of(read_contracts(file(tmp_path, "a.toml", written_contracts(document, "toml"))))


def test_the_example_is_what_the_guide_says() -> None:
    """Plans of 50, 500 and 1000 a second, a trial of 14 days, and what customers have of their own."""
    document = read_contracts(Path(__file__).parents[2] / "examples" / "plans.yaml")
    quotas = {name: plan.limits["api"].limit.quota for name, plan in document.plans.items()}
    (api, *_), (own, export, *_) = (
        terms_of(document, identity, 1_795_000_000).terms for identity in ("not named", "cy")
    )

    assert {"free": 50, "standard": 500, "pro": 1000, "trial": 500} == quotas
    assert (14 * 86_400, "free") == (document.plans["trial"].lasts, document.plans["trial"].then)
    assert ("free", 50) == (api.tier, api.limit.quota)
    assert (2500, 0.1, {"GET": 1, "POST": 2, "*": 1}) == (own.limit.quota, own.limit.soft, own.limit.costs)
    assert (5000, 31 * 86_400, 0.05) == (export.limit.quota, export.limit.window, export.limit.soft)


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(
    "name", ["\x85", "\u2028", "\ufeffa", "\x7f\x1b", "on", "5", "a.b", "é", "\U0001f600", " a ", "", "#"]
)
def test_every_name_is_the_same_in_every_language(language: str, name: str, tmp_path: Path) -> None:
    """Also one that breaks lines, looks like a value, or is nothing but a mark."""
    document = checked(put("customers.ada", {"plan": "free", "note": name}))
    if name:
        document = checked({**table_of(document), "customers": {name: {"plan": "free", "note": name}}})

    assert document == read_contracts(file(tmp_path, f"plans.{language}", written_contracts(document, language)))
