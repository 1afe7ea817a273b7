"""Goal: what `bench.house` says of a package is so.

Method: small packages that are made for it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.house.__main__ import DOCUMENTS, FACES, PACKAGES, TOOLS, WORDS_MAX, main
from bench.house.circles import calls_of, circles_of, graph_of
from bench.house.class_names import repeated_classes
from bench.house.docstrings import poor_docstrings, undocumented
from bench.house.measures import House, files_by_folder, measured
from bench.house.whole import sizes
from bench.house.words import GLOSSARY, banned_words, replacements

ROOT = Path(__file__).parents[2]
FILES_MAX = 14
"""Files that one folder may hold, beside `__init__.py`."""


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
        rooms_max=1,
        beside_max=2,
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
    """Modules may import any others, as long as nothing comes back."""
    (package / "till.py").write_text("x = 1\n")

    assert 0 == measured(package).circles


def test_files_of_c_that_call_each_other_are_a_circle(tmp_path: Path) -> None:
    """Calls of what another file defines count, and what is included; a static function is a file's own."""
    (tmp_path / "both.h").write_text("int pay(void);\nint sell(void);\n")
    (tmp_path / "pay.c").write_text('#include "both.h"\n\nint\npay(void)\n{\n    return sell();\n}\n')
    (tmp_path / "sell.c").write_text(
        '#include "both.h"\n\nstatic int\nadd(void)\n{\n    return pay();\n}\n\n'
        "int\nsell(void)\n{\n    return add();\n}\n"
    )
    (tmp_path / "add.c").write_text("/* pay() */\nstatic int\nadd(void)\n{\n    return 0;\n}\n")

    calls = calls_of(tmp_path)

    assert {"pay.c": {"both.h", "sell.c"}, "sell.c": {"both.h", "pay.c"}, "add.c": set(), "both.h": set()} == calls
    assert [{"pay.c", "sell.c"}] == circles_of(calls)


@pytest.mark.parametrize("package", [*PACKAGES, *TOOLS], ids=str)
def test_nothing_goes_in_circles(package: Path) -> None:
    """Neither modules by their imports, those for types included, nor files of C by their calls."""
    texts = {path: path.read_text() for path in (ROOT / package).rglob("*.py")}

    assert [] == circles_of(graph_of(ROOT / package, texts))


def test_two_classes_of_one_name_are_found(tmp_path: Path) -> None:
    """Also if one of them has an underscore before it, and is in another package."""
    one, other = tmp_path / "one", tmp_path / "other"
    for package, text in ((one, "class Rule: ...\n"), (other, "class Node: ...\n\n\nclass _Rule: ...\n")):
        package.mkdir()
        (package / "a.py").write_text(text)

    assert {"Rule": [f"{one}/a.py:1", f"{other}/a.py:4"]} == repeated_classes([one, other])


def test_what_is_installed_has_one_class_of_each_name() -> None:
    """But for the faces of web frameworks."""
    assert sorted(FACES) == list(repeated_classes([ROOT / package for package in PACKAGES]))


def test_a_folder_without_python_is_an_error(tmp_path: Path) -> None:
    """Which names it."""
    with pytest.raises(FileNotFoundError, match=str(tmp_path)):
        measured(tmp_path)


def test_it_prints_a_table(package: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With a column for each package."""
    main([str(package), str(package)])

    assert "| files; largest folder | 2; 1 | 2; 1 |" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("a.py", "# Counts whoever comes.", "whoever"),
        ("a.py", 'raise ValueError("Nobody answers")', "Nobody"),
        ("a.py", "class LedgerSteward:", "Steward"),
        ("a.py", "def serves_nobody():", "nobody"),
        ("a.c", "/* for who asks */", "who"),
        ("a.lua", "-- somebody waits", "somebody"),
        ("a.py", "def is_told_of_another():", "told"),
        ("a.md", "Everyone reads `this`.", "Everyone"),
        ("a.md", "See [who reads](this.md#nobody).", "who"),
        ("a.md", "| whoever | in a table |", "whoever"),
        ("a.md", "assert all(decisions)  # nobody is refused", "nobody"),
        ("a.json", '{"description": "somebody writes"}', "somebody"),
    ],
)
def test_a_planted_word_is_found(tmp_path: Path, name: str, text: str, found: str) -> None:
    """A banned word is found in a comment, an error text, a part of a name or a document, with its file and line."""
    (tmp_path / name).write_text(f"first line\n{text}\n")

    (line,) = banned_words(tmp_path)

    assert line.startswith(f"{tmp_path / name}:2: {found}: say ")


@pytest.mark.parametrize("text", ["the whole of it", "whose", "foretold", "desktop", "everybody", "a label", "Stewart"])
def test_words_that_only_contain_a_banned_one_are_not_found(tmp_path: Path, text: str) -> None:
    """Neither are words that are allowed, such as the public key function `everybody`."""
    (tmp_path / "a.py").write_text(text)

    assert [] == list(banned_words(tmp_path))


@pytest.mark.parametrize("text", ["`who`", "[the test](a.py::test_nobody)", "[`test_nobody`](a.py) and [this](who.md)"])
def test_code_and_links_of_documents_are_no_prose(tmp_path: Path, text: str) -> None:
    """Names in code and targets of links do not count in a document, because they are written elsewhere."""
    (tmp_path / "a.md").write_text(text)

    assert [] == list(banned_words(tmp_path))


def test_a_single_file_is_searched(tmp_path: Path) -> None:
    """A place to search may be one file, such as the README."""
    (tmp_path / "a.md").write_text("Nobody.")

    assert 1 == len(list(banned_words(tmp_path / "a.md")))


def test_no_document_says_what_the_glossary_bans() -> None:
    """The README, the changelog and the documents are free of banned words; the glossary's tables do not count."""
    assert [] == [each for place in DOCUMENTS for each in banned_words(ROOT / place)]
    assert "whoever" in GLOSSARY.read_text()


@pytest.mark.parametrize("words", [WORDS_MAX, WORDS_MAX + 1])
def test_the_check_fails_beyond_the_limit(tmp_path: Path, words: int, capsys: pytest.CaptureFixture[str]) -> None:
    """At the limit it passes; one more is a failure, and every one is printed."""
    (tmp_path / "a.py").write_text("# nobody\n" * words)

    with pytest.raises(SystemExit) as ended:
        main(["--words", str(tmp_path)])

    assert (words > WORDS_MAX) == ended.value.code
    assert words == capsys.readouterr().out.count("nobody: say")


@pytest.mark.parametrize("docstring", ["See `Hub.close`.", "What it has.", "Have it go.", "Whatever comes."])
def test_a_docstring_that_is_no_sentence_is_found(tmp_path: Path, docstring: str) -> None:
    """It may belong to a module, a function or an attribute; a word that only begins alike is allowed."""
    texts = [docstring, f"def act():\n    {docstring!r}", f"HERE = 1\n{docstring!r}", "'Seeing is believing.'"]
    for number, text in enumerate([repr(docstring), *texts[1:]]):
        (tmp_path / f"{number}.py").write_text(text)

    found = [line.split(":")[:3] for line in poor_docstrings(tmp_path)]

    word = docstring.split(maxsplit=1)[0]
    assert [[f"{tmp_path}/0.py", "1", f" {word}"], [f"{tmp_path}/1.py", "2", f" {word}"]] == found[:2]
    assert [f"{tmp_path}/2.py"] == [path for path, *_ in found[2:]]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("class A:\n    def act(self): ...", True),
        ("class A(Protocol):\n    def act(self): ...", True),
        ("class A(Base):\n    def act(self): ...", False),
        ("class A:\n    def _act(self): ...", False),
        ("class _A:\n    def act(self): ...", False),
        ("class A:\n    @property\n    def act(self): ...", False),
        ("class A:\n    def act(self): ...\nclass Port(Protocol):\n    def act(self):\n        'Act.'", False),
    ],
)
def test_a_public_method_needs_a_docstring_unless_another_class_has_it(
    tmp_path: Path, text: str, *, found: bool
) -> None:
    """A base class or a port describes the method; private and plain ones need no description."""
    (tmp_path / "a.py").write_text(text)

    assert found == bool(list(undocumented([tmp_path])))


def test_a_glossary_without_the_table_is_an_error() -> None:
    """A check without words would pass whatever is written."""
    with pytest.raises(ValueError, match="has no table"):
        replacements("# Glossary")


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_the_layout_of_this_project_keeps_its_bounds(package: Path) -> None:
    """No circle of imports, those for types included; few short files; comments; few rooms side by side."""
    house = measured(ROOT / package)

    assert 0 == house.circles
    assert house.short_files <= 0.1 * house.files
    assert house.comment_share >= 3.0
    assert house.rooms_max <= 15
    assert house.words <= 10


def test_files_of_every_language_but_c_fill_a_folder(package: Path) -> None:
    """Scripts and pages count as modules do; `__init__.py`, data and files of C do not."""
    for name in ("list.lua", "list.html", "list.css", "list.js", "list.c", "list.h", "list.json"):
        (package / "back" / name).touch()

    assert {package: 1, package / "back": 5} == files_by_folder(package)
    assert 5 == measured(package).largest_folder


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_no_room_of_this_project_is_overfull(package: Path) -> None:
    """A folder holds so few files that a reader sees them at one glance."""
    counted = files_by_folder(ROOT / package)

    assert {} == {str(folder.relative_to(ROOT)): files for folder, files in counted.items() if files > FILES_MAX}


def test_the_whole_is_counted_by_kind(tmp_path: Path) -> None:
    """Lines of the product, the tools and the tests, words of all documents, and records without their index."""
    files = {
        "agent/a.py": "one\ntwo\n",
        "sync/b.lua": "three\n",
        "bench/c.py": "four\n",
        "tests/d.py": "five\n\nsix\n",
        "README.md": "two words",
        "docs/decisions/0001-first.md": "three more words",
        "docs/decisions/README.md": "index",
        "agent/notes.txt": "neither code nor a document",
    }
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)

    assert [3, 1, 3, 6, 1] == list(sizes(tmp_path).values())
