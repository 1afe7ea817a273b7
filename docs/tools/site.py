"""Hooks of mkdocs: the documents as a site in which each link stays inside, also one to a file beside docs/.

`mkdocs.yml` names this file. Documents are written for readers of the repository: they link tests, examples and other
files by their path. A site has its own pages alone, so each file that is linked becomes one, below `repository/`.
"""

# How it works. A document links `../../tests/limiter/test_asking.py`. `on_files` follows all links from docs/, adds a
# page for each file that lies elsewhere, and follows those of Markdown files in turn, such as the README's.
# `on_page_markdown` then has the links lead to these pages. A page of Python has a heading at each test, so that a link
# whose text is the name of a test leads to that test. No address of a repository is needed, and the site can be read
# without a network.
#
# A link to a test becomes a footnote, because most readers of a page believe it without its proof. The first page shows
# the README's picture and its shortest program before the list of documents. `on_post_build` takes pages of code out of
# the index of the search, and each text that it has twice, so a search finds documents, and the browser loads less.

from __future__ import annotations

import ast
import json
import posixpath
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pygments.formatters import HtmlFormatter
from pymdownx.slugs import slugify

ROOT: Final = Path(__file__).parents[2]
ELSEWHERE: Final = "repository"
COLOURS: Final = "pictures/code.css"
DARK: Final = "monokai"
"""The colours of code for readers whose browser or choice is dark."""
FIRST: Final = "README.md"
INDEX: Final = "search/search_index.json"
LINK: Final = re.compile(r"(\[(?P<text>[^\]]*)\]\()(?P<target>[^)\s]+)\)")
FENCE: Final = re.compile(r"^ *(```+|~~~+)")
ITEM: Final = re.compile(r"^(?:[-*]|\d+\.) +")
AS_THEY_ARE: Final = (".html", ".png", ".svg")
LEXERS: Final = {".py": "python", ".toml": "toml", ".json": "json", ".yaml": "yaml", ".lua": "lua", ".c": "c"}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Name headings as they are named where the repository is read, since links name them so."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = slugify(case="lower")
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add a page for each file beside docs/ that a document links, and the colours of code."""
    colours = HtmlFormatter().get_style_defs(".highlight")
    dark = HtmlFormatter(style=DARK).get_style_defs('[data-bs-theme="dark"] .highlight')
    files.append(File.generated(config, COLOURS, content=f"{colours}\n{dark}\n"))
    ahead = [path for path in (ROOT / "docs").rglob("*.md") if path.is_file()]
    seen = set(ahead)
    while ahead:
        for _, path, _ in links(ahead.pop()):
            if path not in seen and path.exists():
                seen.add(path)
                ahead += [path] if path.suffix == ".md" else []
                if not path.is_relative_to(ROOT / "docs"):
                    files.append(_page(path, config))
    return files


def _page(path: Path, config: MkDocsConfig) -> File:
    """What stands for a file or a folder beside docs/."""
    address = address_of(path)
    if path.suffix in AS_THEY_ARE:
        return File.generated(config, address, abs_src_path=str(path))
    if path.suffix == ".md":
        return File.generated(config, address, content=path.read_text(encoding="utf-8"))
    return File.generated(config, address, content=folder(path) if path.is_dir() else source(path))


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """Have links lead to pages of the site, and lists be read as where the repository is read."""
    path = path_of(page.file.src_uri)
    if path is None:
        return markdown
    if page.file.src_uri == FIRST:
        markdown = f"{landing(path)}\n{markdown.partition(chr(10))[2]}"
    return relinked(in_lists(markdown), path)


def landing(path: Path) -> str:
    """Returns the head of the first page: the README's first paragraph, its picture and its shortest program.

    Its links lead on from `path`, where the text is put.
    """
    readme = ROOT / "README.md"
    title, what, picture, *_ = readme.read_text(encoding="utf-8").split("\n\n")
    program = readme.read_text(encoding="utf-8").partition("## Six lines\n\n")[2].partition("\n```\n")[0]
    head = f"{title}\n\n{what}\n\n{picture}\n\n{program}\n```\n"
    return LINK.sub(lambda found: f"{found[1]}{_moved(found['target'], readme, path)})", head)


def _moved(target: str, of: Path, to: Path) -> str:
    destination, anchor = split(target, of)
    if destination is None:
        return target
    return posixpath.relpath(destination.as_posix(), to.parent.as_posix()) + (f"#{anchor}" if anchor else "")


def on_post_build(*, config: MkDocsConfig) -> None:
    """Take code out of the index of the search, and the text of each page that its sections repeat."""
    place = Path(config.site_dir) / INDEX
    index = json.loads(place.read_text(encoding="utf-8"))
    index["docs"] = [each for each in index["docs"] if not is_code(each["location"])]
    with_sections = {each["location"].partition("#")[0] for each in index["docs"] if "#" in each["location"]}
    for each in index["docs"]:
        if each["location"] in with_sections:
            each["text"] = ""
    place.write_text(json.dumps(index, separators=(",", ":"), ensure_ascii=False), encoding="utf-8")


def is_code(location: str) -> bool:
    """Whether an address of the site is that of a file or folder beside docs/ that is no document."""
    inside = PurePosixPath(location.partition("#")[0])
    if inside.parts[:1] != (ELSEWHERE,):
        return False
    beside = ROOT.joinpath(*inside.parts[1:])
    return not (beside.with_name(f"{beside.name}.md").is_file() or (beside / "README.md").is_file())


def relinked(markdown: str, path: Path) -> str:
    """The text of a document, with the links of its prose as they are in the site, and notes for its tests."""
    notes = dict[str, str]()
    lines = [_relinked(line, path, notes) if prose else line for line, prose in lines_of(markdown)]
    return "\n".join([*lines, *([""] if notes else []), *notes.values()])


def _relinked(line: str, path: Path, notes: dict[str, str]) -> str:
    """Returns a line with its links as in the site; adds a footnote to `notes` for each link to a test."""
    here = posixpath.dirname(address_of(path))

    def link(found: re.Match[str]) -> str:
        destination, anchor = split(found["target"], path)
        if destination is None or not destination.is_relative_to(ROOT) or not destination.exists():
            return found[0]  # another site, or a mistake that mkdocs tells of
        anchor = anchor or _test_in(destination, found["text"].strip("`"))
        target = posixpath.relpath(address_of(destination), here)
        target = f"{target}{'#' if anchor else ''}{anchor}"
        if not destination.is_relative_to(ROOT / "tests"):
            return f"{found[1]}{target})"
        name = destination.relative_to(ROOT).as_posix() + (f", {anchor}" if anchor else "")
        note = notes.setdefault(target, f"[^{len(notes) + 1}]: [`{name}`]({target})")
        return f"{found['text']}{note.partition(':')[0]}"

    return LINK.sub(link, line)


def _test_in(path: Path, name: str) -> str:
    """The anchor of the test that a link is called after, or nothing."""
    return name if path.suffix == ".py" and name in tests_in(path.read_text(encoding="utf-8")) else ""


# -------------------------------------------------------------------- files and addresses


def address_of(path: Path) -> str:
    """Where a file or folder is in the site, as mkdocs names sources."""
    inside = path.relative_to(ROOT).as_posix()
    if path.is_dir() and (path / "README.md").is_file():
        return address_of(path / "README.md")
    if inside.startswith("docs/"):
        return inside.removeprefix("docs/")
    return f"{ELSEWHERE}/{inside}" + ("" if path.suffix in (".md", *AS_THEY_ARE) else ".md")


def path_of(address: str) -> Path | None:
    """The other way round; None for what no file stands behind."""
    inside = PurePosixPath(address)
    if inside.parts[0] != ELSEWHERE:
        path = ROOT / "docs" / inside
        return path if path.is_file() else None
    beside = ROOT.joinpath(*inside.parts[1:])
    return beside if beside.is_file() else beside.with_suffix("")


def links(path: Path) -> Iterator[tuple[str, Path, str]]:
    """Text, destination and anchor of all links of a document that stay in the repository."""
    if path.suffix == ".md":
        for line, prose in lines_of(path.read_text(encoding="utf-8")):
            for found in LINK.finditer(line) if prose else ():
                destination, anchor = split(found["target"], path)
                if destination is not None and destination.is_relative_to(ROOT):
                    yield found["text"], destination, anchor


def split(target: str, path: Path) -> tuple[Path | None, str]:
    """The file that a link of a document leads to, None for one into the world, and the anchor."""
    if re.match(r"[a-z]+:", target):
        return None, ""
    place, _, anchor = target.partition("#")
    return (path.parent / place).resolve() if place else path, anchor


# -------------------------------------------------------------------- text


def lines_of(text: str) -> Iterator[tuple[str, bool]]:
    """Each paragraph's line, joined to those that a link goes on in, and whether it is prose and no code."""
    fence = ""
    paragraph: list[str] = []
    for line in text.split("\n"):
        found = FENCE.match(line)
        if not fence and not found and line.strip():
            paragraph.append(line)
            continue
        if paragraph:
            yield "\n".join(paragraph), True
            paragraph = []
        yield line, not fence and not found
        if found and not fence:
            fence = found[1]
        elif fence and line.strip() == fence:
            fence = ""
    if paragraph:
        yield "\n".join(paragraph), True


def in_lists(text: str) -> str:
    """Indent what belongs to an item of a list by four, which is what mkdocs takes for it, instead of by its marker."""
    indented: list[str] = []
    marker = 0
    for line in text.split("\n"):
        found = ITEM.match(line)
        if found:
            marker = len(found[0])
        elif line.strip() and not line.startswith(" "):
            marker = 0
        inside = marker and not found and line.startswith(" " * marker)
        indented.append("    " + line[marker:] if inside else line)
    return "\n".join(indented)


def source(path: Path) -> str:
    """A page that shows a file, of Python with a heading at each test."""
    text = path.read_text(encoding="utf-8")
    name = path.relative_to(ROOT).as_posix()
    lexer = LEXERS.get(path.suffix, "text")
    lines = text.split("\n")
    places = tests_in(text) if path.suffix == ".py" else {}
    parts, last = [f"# `{name}`"], 0
    for test, line in sorted(places.items(), key=lambda place: place[1]):
        parts += [_fenced(lines[last : line - 1], lexer), f"## `{test}` {{ #{test} }}"]
        last = line - 1
    return "\n\n".join([*parts, _fenced(lines[last:], lexer)])


def _fenced(lines: list[str], lexer: str) -> str:
    code = "\n".join(lines).strip("\n")
    return f"~~~~~~{lexer}\n{code}\n~~~~~~" if code else ""


@cache
def tests_in(text: str) -> dict[str, int]:
    """In which line each test of a module begins, with its decorators."""
    return {
        node.name: min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and node.name.startswith(("test_", "Test"))
    }


def folder(path: Path) -> str:
    """A page that names the files of a folder."""
    names = sorted(each.name for each in path.iterdir() if each.suffix in LEXERS)
    return "\n".join([f"# `{path.relative_to(ROOT).as_posix()}/`", "", *(f"- `{name}`" for name in names)])
