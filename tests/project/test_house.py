"""Goal: what `bench.house` says of a package is so.

Method: small packages that are made for it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.house import House, main, measured


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Two modules that import each other, one of them for types alone, and a folder with a third."""
    root = tmp_path / "shop"
    (root / "back").mkdir(parents=True)
    (root / "__init__.py").write_text('"""Whoever buys."""\n')
    (root / "till.py").write_text(
        "from typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n    from shop.back import store\n\n\n"
        "def pay():  # noqa: D103\n" + "    x = 1\n" * 50 + "    return x\n"
    )
    (root / "back" / "__init__.py").write_text("")
    (root / "back" / "store.py").write_text("from shop import till\n# nobody comments: who would?\nassert till\n")
    return root


def test_a_package_is_measured(package: Path) -> None:
    """Directives to tools are no comments; an import for types makes a circle, too."""
    assert House(
        name="shop",
        files=2,
        largest_folder=1,
        rooms_max=2,
        median_lines=30.5,
        short_files=2,
        functions=1,
        long_functions=1,
        comment_share=100 * 1 / 62,
        circles=1,
        in_circles=2,
        words=3,
    ) == measured(package)


def test_without_the_import_for_types_there_is_no_circle(package: Path) -> None:
    """Whatever imports whatever else, as long as nothing comes back."""
    (package / "till.py").write_text("x = 1\n")

    assert 0 == measured(package).circles


def test_a_folder_without_python_is_an_error(tmp_path: Path) -> None:
    """Which names it."""
    with pytest.raises(FileNotFoundError, match=str(tmp_path)):
        measured(tmp_path)


def test_it_prints_a_table(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With a column for each package."""
    main([str(package), str(package)])

    assert "| files; largest folder | 2; 1 | 2; 1 |" in capsys.readouterr().out
