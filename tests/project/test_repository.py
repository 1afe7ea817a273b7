"""Goal: what a contributor meets beside the code works: workflows, templates, hooks, `uv sync`.

Method: the files are read, and what they name is compared with what there is.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
GITHUB = ROOT / ".github"
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
FORMS = sorted(path for path in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")
OTHERS = [*GITHUB.glob("*.yml"), *(GITHUB / "ISSUE_TEMPLATE").glob("*.yml"), ROOT / ".pre-commit-config.yaml"]
PACKAGES = ("redis-server", "openssl", "mosquitto")
"""Debian packages without which `make test` and `make test-all` end at once."""


def read(path: Path) -> Any:
    """The content of a YAML file."""
    return yaml.safe_load(path.read_text())


def steps(path: Path) -> list[dict[str, Any]]:
    """All steps of a workflow."""
    return [step for job in read(path)["jobs"].values() for step in job["steps"]]


def commands(path: Path) -> str:
    """All that the steps of a workflow run."""
    return "\n".join(step["run"] for step in steps(path) if "run" in step)


@pytest.mark.parametrize("path", [*WORKFLOWS, *OTHERS], ids=lambda path: path.name)
def test_every_file_of_habits_is_yaml(path: Path) -> None:
    """Each holds a mapping."""
    assert isinstance(read(path), dict)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_makes_targets_that_exist(path: Path) -> None:
    """Each `make` in a workflow names a target of the Makefile."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

    assert set() == set(re.findall(r"^make ([a-z-]+)", commands(path), re.MULTILINE)) - targets


def test_workflows_use_one_version_of_each_action() -> None:
    """An action has the same version in all workflows."""
    used = {step["uses"] for path in WORKFLOWS for step in steps(path) if "uses" in step}

    assert len(used) == len({action.partition("@")[0] for action in used})


def test_a_pull_request_is_checked_and_tested() -> None:
    """On the oldest Python and on another that the project declares, by a workflow that may write nothing."""
    path = GITHUB / "workflows" / "tests.yml"
    workflow = read(path)
    declared = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["project"]["classifiers"]))
    tried = workflow["jobs"]["tests"]["strategy"]["matrix"]["python"]

    assert "pull_request" in workflow[True]  # YAML takes the word `on` for true
    assert {"contents": "read"} == workflow["permissions"]
    assert {"check", "test-all"} <= set(re.findall(r"^make ([a-z-]+)", commands(path), re.MULTILINE))
    assert PROJECT["project"]["requires-python"].removeprefix(">=") == tried[0]
    assert 2 <= len(tried) == len(set(tried) & set(declared))


def test_a_pull_request_has_the_debian_packages_of_the_readme() -> None:
    """The workflow installs what tests need, and nothing that the README does not name."""
    (line,) = re.findall(r"apt-get install (.*)", commands(GITHUB / "workflows" / "tests.yml"))
    installed = {word for word in line.split() if not word.startswith("--")}
    named = set(re.findall(r"`([a-z0-9-]+)`", (ROOT / "README.md").read_text()))

    assert set(PACKAGES) <= installed <= named


def test_tests_refuse_to_begin_without_these_packages() -> None:
    """The packages that this file names are those that the Makefile demands."""
    makefile = (ROOT / "Makefile").read_text()
    demanded = re.findall(r"^test(?:-everything)?: \$.*\n\t@\.ci/programs (.*)$", makefile, re.MULTILINE)

    assert [" ".join(PACKAGES)] * 2 == demanded


def test_commits_are_checked_by_the_ruff_that_is_pinned() -> None:
    """The hook has a version within the one that pyproject.toml pins; the local hook counts words."""
    hosted, local = read(ROOT / ".pre-commit-config.yaml")["repos"]
    (pinned,) = [each for each in PROJECT["project"]["optional-dependencies"]["dev"] if each.startswith("ruff==")]

    assert hosted["rev"].startswith("v" + pinned.removeprefix("ruff==").removesuffix("*"))
    assert {"ruff-check", "ruff-format"} == {hook["id"] for hook in hosted["hooks"]}
    assert ["python -m bench.house --words"] == [hook["entry"] for hook in local["hooks"]]


def test_uv_installs_what_pip_does() -> None:
    """`uv sync` installs the group `dev`, which is the extra of that name and nothing else."""
    assert {"dev": ["reconverge[dev]"]} == PROJECT["dependency-groups"]


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_a_form_for_issues_asks_something(path: Path) -> None:
    """It has a name and a description, and its questions have labels and different ids."""
    form = read(path)
    questions = [part for part in form["body"] if part["type"] != "markdown"]
    ids = [part["id"] for part in questions]

    assert form["name"]
    assert form["description"]
    assert 1 <= len(ids) == len(set(ids))
    assert all(part["attributes"]["label"] for part in questions)


@pytest.mark.parametrize("path", [*FORMS, GITHUB / "PULL_REQUEST_TEMPLATE.md"], ids=lambda path: path.name)
def test_templates_name_what_exists(path: Path) -> None:
    """A file or a make target that a template names is there."""
    text = path.read_text()
    files = re.findall(r"\b[A-Z]+\.md\b|(?<=`)[\w/]+/(?=`)", text)
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))

    assert [] == [name for name in files if not (ROOT / name).exists()]
    assert set() == set(re.findall(r"`make ([a-z-]+)`", text)) - targets
