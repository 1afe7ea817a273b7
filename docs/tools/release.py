"""What a release still needs: `make release-check`, or `python -m docs.tools.release`.

Ends with status 1 while something is missing. What only the owner of the project can fill in is said to be.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import reconverge

ROOT: Final = Path(__file__).parents[2]
PLACEHOLDER: Final = "ADDRESS-OF-THE-OWNER"
UNRELEASED: Final = "(unreleased)"
OWNER: Final = "owner"
PROJECT: Final = "project"


@dataclass(frozen=True, slots=True)
class Missing:
    """One thing that a release needs."""

    party: str
    """The owner, where no other party can fill it in."""
    what: str
    where: str

    def __str__(self) -> str:
        return f"{self.party}: {self.what} ({self.where})"


def missing(root: Path = ROOT) -> list[Missing]:
    """All of it, in the order in which it is filled in. Raises OSError when a file is not there."""
    pyproject: dict[str, Any] = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    version: str = pyproject["project"]["version"]
    security = (root / "SECURITY.md").read_text(encoding="utf-8")
    changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    address: str = pyproject["tool"]["reconverge"]["repository"]
    heading = rf"^## {re.escape(version)}, \d{{4}}-\d{{2}}-\d{{2}}$"
    same = f"the same version in the package, {reconverge.__version__}, as declared, {version}"
    needed = [
        (bool(address), OWNER, "the address of the repository, for all links", "pyproject.toml, tool.reconverge"),
        ("authors" in pyproject["project"], OWNER, "the authors, with an address", "pyproject.toml, project.authors"),
        (PLACEHOLDER not in security, OWNER, "where a vulnerability is reported to", f"SECURITY.md, {PLACEHOLDER}"),
        (version == reconverge.__version__, PROJECT, same, "pyproject.toml"),
        (not _fragments(root), PROJECT, "what has changed, put into the changelog: towncrier build", "changes/"),
        (UNRELEASED not in changelog, PROJECT, f"no heading with {UNRELEASED!r}", "CHANGELOG.md"),
        (bool(re.search(heading, changelog, re.MULTILINE)), PROJECT, f"a heading for {version}, dated", "CHANGELOG.md"),
    ]
    return [Missing(party, what, where) for there, party, what, where in needed if not there]


def _fragments(root: Path) -> list[Path]:
    """What users will notice, and no heading of the changelog has yet."""
    return [path for path in (root / "changes").glob("*.md") if path.name != "README.md"]


def main() -> None:
    """Print what is missing, a line for each."""
    found = missing()
    print(*found, f"{len(found)} things are missing for a release", sep="\n")
    raise SystemExit(bool(found))


if __name__ == "__main__":
    main()
