"""Goal: no regular expression goes back over a text so often that its work grows faster than the text.

Method: every expression that stands in the sources is walked through by a matcher that counts its steps, on texts that
begin like a match, repeat a part of one, and end otherwise, of one, two and four times a length.
"""

from __future__ import annotations

import ast
import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from reconverge.integrations.web.request.paths import RulePath
from tests.support.regex_steps import Matcher, TooManySteps, hostile_texts
from tests.support.work import FASTER, SEARCHING

ROOT: Final = Path(__file__).parents[2]
SOURCES: Final = [(ROOT / "agent", "reconverge"), (ROOT / "sync", "reconverge_sync")]
WHOLE: Final = frozenset({"fullmatch"})
LENGTH: Final = 16
FEW: Final = 4
SLACK: Final = 60
"""Of steps."""
_FILE: Final = "it looks through a file of the operator's own, to say in which line something is wrong"
TRUSTED: Final = {
    **{
        f"reconverge.integrations.config.positions.{name}": _FILE
        for name in ("_FIELD", "_LONG_NUMBER", "_CONSTANT", "_BRACKET")
    },
    "reconverge.integrations.web.request.paths._ATOM": "it looks through an expression in a route of the application",
}
"""Expressions that grow faster, and why that does no harm."""
DEEP: Final = 10_000
"""Frames that the matcher may need, which calls itself for each repetition."""
PATHS: Final = [
    "/login",
    "/items/{id}",
    "/{a}-{b}-{c}",
    "/{a}/{b}/{c}",
    "/files/{name:path}/edit",
    "/{a}/{b:path}/{c}",
    "/api/*",
    "/files/<path:name>",
]
"""Of rules, of which expressions are made."""


class Expression(NamedTuple):
    """One expression, and which of its methods the sources use."""

    name: str
    pattern: re.Pattern[Any]
    methods: frozenset[str]


def modules() -> Iterator[tuple[str, ast.Module]]:
    """All modules, by their names."""
    for folder, package in SOURCES:
        for file in sorted((folder / package).rglob("*.py")):
            name = ".".join(file.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")
            yield name, ast.parse(file.read_text("utf-8"))


def expressions() -> Iterator[Expression]:
    """The expressions that have a name in a module, and those that stand where they are used."""
    used: dict[str, set[str]] = {}
    compiled: list[tuple[str, str]] = []
    for name, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                used.setdefault(node.value.id, set()).add(node.attr)
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and _is_compiled(node.value):
                compiled.append((name, node.target.id))
            if isinstance(node, ast.Call) and _is_of_re(node.func) and isinstance(node.args[0], ast.Constant):
                assert isinstance(node.func, ast.Attribute)
                said: Any = node.args[0].value
                if node.func.attr != "compile":
                    yield Expression(f"{name}:{node.lineno}", re.compile(said), frozenset({node.func.attr}))
    for module, name in compiled:
        pattern = getattr(importlib.import_module(module), name)
        yield Expression(f"{module}.{name}", pattern, frozenset(used[name] & {*SEARCHING, "match", *WHOLE}))


def _is_of_re(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "re"


def _is_compiled(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Call) and _is_of_re(node.func) and getattr(node.func, "attr", "") == "compile"


@pytest.fixture(autouse=True, scope="module")
def _deep() -> Iterator[None]:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(DEEP)
    yield
    sys.setrecursionlimit(before)


def steps(matcher: Matcher, text: str, method: str) -> int:
    """How many steps the matcher takes by a method."""
    matcher.steps = 0
    if method in WHOLE:
        matcher.fullmatches(text)
    elif method == "match":
        matcher.matches(text)
    else:
        matcher.found(text)
    return matcher.steps


def grows_on(expression: Expression) -> str | None:
    """A text on which an expression takes more than its share of steps; None if there is none."""
    matcher = Matcher(expression.pattern)
    is_bytes = isinstance(expression.pattern.pattern, bytes)
    texts = zip(*(hostile_texts(matcher, LENGTH * times) for times in (1, 2, 4)), strict=True)
    for once, twice, four_times in texts:
        for method in expression.methods or {"search"}:
            counted: list[int] = []
            for text in (once, twice, four_times):
                try:
                    counted.append(steps(matcher, text.encode("latin-1", "replace") if is_bytes else text, method))
                except TooManySteps:
                    return f"{method} of {text!r}"
            if counted[2] - counted[1] > FASTER * max(counted[1] - counted[0], 0) + SLACK:
                return f"{method} of {four_times!r}: {counted}"
    return None


ALL: Final = list(expressions())


def test_the_expressions_are_found() -> None:
    """A test of none would find nothing. Those that are trusted are still there."""
    assert len(ALL) > 60
    assert TRUSTED.keys() <= {each.name for each in ALL}


@pytest.mark.parametrize("expression", [each for each in ALL if each.name not in TRUSTED], ids=lambda each: each.name)
def test_no_expression_goes_back_more_often_than_its_text_is_long(expression: Expression) -> None:
    """Of those in the sources, in the way in which they are used."""
    assert None is grows_on(expression)


@pytest.mark.parametrize("path", PATHS)
def test_no_path_of_a_rule_makes_one_that_does(path: str) -> None:
    """With values of all kinds, one after the other."""
    place = RulePath(path)
    found = [grows_on(Expression(path, each, WHOLE)) for each in (*place.patterns, *place._of_forms)]

    assert [None] * len(found) == found


@pytest.mark.parametrize(
    ("planted", "method"),
    [
        ("(a+)+$", "fullmatch"),
        ("a+b", "search"),
        (r"[^/]+-[^/]+-[^/]+", "fullmatch"),
        (r"\s+$", "sub"),
        ('"(a|a)*"', "match"),
        ("[a-z]*[a-y]*", "fullmatch"),
    ],
)
def test_one_that_does_is_found(planted: str, method: str) -> None:
    """Square ones and worse."""
    assert None is not grows_on(Expression("planted", re.compile(planted), frozenset({method})))


@pytest.mark.parametrize("expression", ALL, ids=lambda each: each.name)
def test_the_matcher_finds_what_pythons_finds(expression: Expression) -> None:
    """Else its steps would tell nothing."""
    matcher, differ = Matcher(expression.pattern), list[str]()
    for text in hostile_texts(matcher, FEW):
        said: Any = text.encode("latin-1", "replace") if isinstance(expression.pattern.pattern, bytes) else text
        matcher.steps = 0
        try:
            found = matcher.fullmatches(said)
        except TooManySteps:
            continue
        if found != (expression.pattern.fullmatch(said) is not None):
            differ.append(text)

    assert [] == differ
