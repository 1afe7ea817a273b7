"""Goal: a release keeps what users have written, says its version once, and its links lead somewhere.

Method: the public names of the code are compared with a snapshot, the metadata are built as an installer builds them,
and the list of what a release needs is asked about projects that lack something.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from difflib import unified_diff
from email.message import Message
from email.parser import Parser
from pathlib import Path
from typing import Any

import pytest
import yaml

import reconverge
from docs.tools import public, release

ROOT = Path(__file__).parents[2]
ADDRESS = "https://example.org/reconverge"
NO_ADDRESS = 'repository = ""'
BUILD_S_MAX = 120.0
BUILDS = (
    "import sys; from setuptools import build_meta; print(build_meta.prepare_metadata_for_build_wheel(sys.argv[1]))"
)
HOW = "if names were only added: python -m docs.tools.public; else see docs/reference/versioning.md"


def test_no_public_name_changes_unnoticed() -> None:
    """Names, members and parameters are those of the snapshot; what differs is shown line by line."""
    kept = public.SNAPSHOT.read_text().splitlines()

    assert [] == list(unified_diff(kept, list(public.names()), lineterm="", n=0)), HOW


def test_what_is_hidden_is_there() -> None:
    """A name on the list of what is not public exists; one that is gone would hide another by mistake."""
    classes = {
        name: getattr(sys.modules[module], name)
        for module in ("reconverge", "reconverge.integrations")
        for name in public.exported(module)
    }
    unknown = {name: hidden - set(dir(classes[name])) for name, hidden in public.HIDDEN.items()}
    # Attributes of an instance, which its class does not have.
    for name in ("Limiter", "RateLimiter", "SlotLimiter", "Outcome", "Request", "Rule"):
        del unknown[name]

    assert {} == {name: names for name, names in unknown.items() if names}


def test_the_version_is_the_declared_one() -> None:
    """`reconverge.__version__` and pyproject.toml say the same."""
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == reconverge.__version__


def metadata(place: Path, address: str) -> Message:
    """Returns the project's metadata for installers, with that address of the repository."""
    for name in ("README.md", "setup.py", "LICENSE"):
        (place / name).write_text((ROOT / name).read_text())
    declared = (ROOT / "pyproject.toml").read_text()
    assert NO_ADDRESS in declared or not address
    (place / "pyproject.toml").write_text(declared.replace(NO_ADDRESS, f'repository = "{address}"'))
    for package in ("agent/reconverge", "sync/reconverge_sync"):
        (place / package).mkdir(parents=True)
        (place / package / "__init__.py").touch()
    (place / "made").mkdir()
    command = [sys.executable, "-c", BUILDS, str(place / "made")]
    subprocess.run(command, cwd=place, capture_output=True, check=True, timeout=BUILD_S_MAX)
    (found,) = (place / "made").glob("*/METADATA")
    return Parser().parsestr(found.read_text())


def test_links_of_a_release_are_absolute(tmp_path: Path) -> None:
    """With an address, the page of a package index has links beside the text, and none in the text that is relative."""
    told = metadata(tmp_path, ADDRESS)
    targets = re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", str(told.get_payload()))

    assert f"Repository, {ADDRESS}" in told.get_all("Project-URL", [])
    assert f"{ADDRESS}/raw/main/docs/pictures/partition.svg" in targets
    assert f"{ADDRESS}/blob/main/docs/start/quickstart.md" in targets
    assert [] == [target for target in targets if not target.startswith(("https://", "#"))]


def test_without_an_address_no_link_is_made_up(tmp_path: Path) -> None:
    """The owner has not said where the repository is, so there are no links beside the text."""
    told = metadata(tmp_path, "")

    assert [] == told.get_all("Project-URL", [])
    assert str(told.get_payload()).startswith("# reconverge")
    assert reconverge.__version__ == told["Version"]


WORKFLOW: dict[str, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())["jobs"]


def test_wheels_are_built_and_tried_for_every_python_that_is_declared() -> None:
    """The configuration names each of them, images of manylinux for both processors, and a program that is there."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheels, linux = declared["tool"]["cibuildwheel"], declared["tool"]["cibuildwheel"]["linux"]
    told = re.findall(r"Python :: 3\.(\d+)", "\n".join(declared["project"]["classifiers"]))

    assert {f"cp3{minor}-*" for minor in told} <= set(wheels["build"])
    assert {each["arch"] for each in WORKFLOW["wheels"]["strategy"]["matrix"]["include"]} == set(linux["archs"])
    assert all(linux[f"manylinux-{arch}-image"].startswith("manylinux") for arch in linux["archs"])
    assert (ROOT / wheels["test-command"].removeprefix("python {project}/")).is_file()


def test_what_is_published_is_attested_and_comes_of_a_tag_alone() -> None:
    """The job that publishes waits for all that is built, attests each file before, and has no right that it needs not.

    No other job may write anything.
    """
    publish = WORKFLOW["publish"]
    attested, published = [step for step in publish["steps"] if "attest" in str(step)]

    assert {"wheels", "sdist"} == set(publish["needs"])
    assert "startsWith(github.ref, 'refs/tags/')" == publish["if"]
    assert {"id-token": "write", "attestations": "write", "contents": "read"} == publish["permissions"]
    assert attested["uses"].startswith("actions/attest-build-provenance@")
    assert "dist/*" == attested["with"]["subject-path"]
    assert published["uses"].startswith("pypa/gh-action-pypi-publish@")
    assert published["with"]["attestations"] is True
    assert {"publish"} == {name for name, job in WORKFLOW.items() if "permissions" in job}


def test_what_has_changed_can_be_put_into_the_changelog() -> None:
    """Each file in changes/ has a type that is known, comes out under its heading, and its links lead somewhere."""
    files = [path for path in (ROOT / "changes").iterdir() if path.name != "README.md"]
    types = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]["type"]
    command = [sys.executable, "-m", "towncrier", "build", "--draft", "--version", "9.9"]
    drafted = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout
    targets = [target for target in re.findall(r"\]\(([^)#]+)[^)]*\)", drafted) if ":" not in target]

    assert [] == [
        path.name
        for path in files
        if not re.search(rf"\.({'|'.join(each['directory'] for each in types)})\.md$", path.name)
    ]
    assert [] == [path.name for path in files if path.read_text().strip() not in drafted]
    assert [] == [target for target in targets if not (ROOT / target).exists()]


def sections() -> dict[str, list[str]]:
    """The entries of the changelog, a line for each, by the heading of their release."""
    _, *parts = re.split(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    return {
        heading: re.findall(r"^- .*$", text, re.MULTILINE)
        for heading, text in zip(parts[::2], parts[1::2], strict=True)
    }


def test_the_changelog_has_one_section_for_each_version() -> None:
    """A version has a date, or is the declared one and unreleased; no other heading stands among them."""
    versions = [re.fullmatch(r"(\d+\.\d+\.\d+)(?:, \d{4}-\d{2}-\d{2}| \(unreleased\))", each) for each in sections()]
    named = [found[1] for found in versions if found]
    unreleased = [each for each in sections() if each.endswith(release.UNRELEASED)]

    assert len(sections()) == len(named) == len(set(named))
    assert unreleased in ([], [f"{reconverge.__version__} {release.UNRELEASED}"])


def test_the_first_release_links_a_page_for_each_thing_that_it_has() -> None:
    """An entry is one short line, which links the page that explains it."""
    (first,) = [entries for heading, entries in sections().items() if heading.startswith("0.1.0")]
    linked = re.compile(r"- \[.{10,120}\]\((?:docs/[\w/-]+|README)\.md(?:#[\w-]+)?\)\.")

    assert 40 <= len(first) <= 80
    assert [] == [entry for entry in first if not linked.fullmatch(entry)]


@pytest.fixture
def complete(tmp_path: Path) -> Path:
    """A project that lacks nothing."""
    version = reconverge.__version__
    (tmp_path / "pyproject.toml").write_text(
        f'[project]\nversion = "{version}"\nauthors = [{{name = "Ada"}}]\n[tool.reconverge]\nrepository = "{ADDRESS}"\n'
    )
    (tmp_path / "SECURITY.md").write_text("Write to security@example.org.")
    (tmp_path / "changes").mkdir()
    (tmp_path / "changes" / "README.md").write_text("How it is done.")
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n## {version}, 2026-12-01\n")
    return tmp_path


def test_a_complete_project_lacks_nothing(complete: Path) -> None:
    """The list is empty, and the check ends well."""
    assert [] == release.missing(complete)


@pytest.mark.parametrize(
    ("file", "there", "gone", "what"),
    [
        ("pyproject.toml", ADDRESS, "", "owner: the address of the repository"),
        ("pyproject.toml", 'authors = [{name = "Ada"}]', "", "owner: the authors"),
        ("SECURITY.md", "security@example.org", release.PLACEHOLDER, "owner: where a vulnerability is reported"),
        ("pyproject.toml", f'version = "{reconverge.__version__}"', 'version = "9.9"', "project: the same version"),
        ("CHANGELOG.md", ", 2026-12-01", "", "project: a heading for"),
        ("CHANGELOG.md", "# Changelog", "# Changelog\n\n## 9.9 (unreleased)", "project: no heading with"),
        ("changes/README.md", "", "", "project: what has changed, put into the changelog"),
    ],
)
def test_what_is_missing_is_listed(complete: Path, file: str, there: str, gone: str, what: str) -> None:
    """With the party that has to fill it in, and the place."""
    path = complete / file
    path.write_text(path.read_text().replace(there, gone))
    if not there:
        path.rename(path.with_name("+it.added.md"))

    assert any(str(each).startswith(what) for each in release.missing(complete))


def test_every_public_name_is_imported_when_it_is_asked_for() -> None:
    """`import reconverge` imports no part of it, each name and each module beside it is there all the same."""
    program = (
        "import sys, reconverge\n"
        "print(sorted(name for name in sys.modules if name.startswith('reconverge.')))\n"
        "print(set(reconverge.__all__) - set(dir(reconverge)))\n"
        "print([hasattr(reconverge, name) for name in ('nosuch', '_no')])\n"
        "print(all(hasattr(reconverge, name) for name in reconverge.__all__))\n"
        "print(reconverge.errors.InvalidLimit.__name__)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)

    said = ["[]", "set()", "[False, False]", "True", "InvalidLimit"]
    assert said == done.stdout.splitlines()


def test_checkers_of_types_find_each_public_name_where_it_is_imported_from() -> None:
    """The imports that only checkers read, and the table that is read at run time, say the same."""
    source = ast.parse((ROOT / "agent" / "reconverge" / "__init__.py").read_text())
    (unread,) = [node for node in source.body if isinstance(node, ast.If) and "TYPE_CHECKING" == ast.unparse(node.test)]
    read = {name.name: node.module for node in unread.body if isinstance(node, ast.ImportFrom) for name in node.names}

    assert read == reconverge._PLACES
    assert set(read) == set(reconverge.__all__)
