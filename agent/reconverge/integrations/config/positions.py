"""Reads files of settings in TOML, YAML and JSON, and finds the line in which a field is written."""

from __future__ import annotations

import json
import re
import tomllib
from codecs import BOM_UTF8
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NoReturn, cast

from reconverge.errors import MissingExtra, ReconvergeError

try:
    import yaml
except ImportError as error:
    raise MissingExtra("a file of settings", "PyYAML", "config") from error

TOML: Final = (".toml",)
YAML: Final = (".yaml", ".yml")
JSON: Final = (".json",)
CHARACTERS_MAX: Final = 1 << 20
"""The most characters of a file of settings; a thousand limits take a tenth of them."""
UTF8_BYTES_MAX: Final = 4
"""The most bytes of one character in UTF-8."""
VALUES_MAX: Final = 4 * CHARACTERS_MAX
"""The most values in a YAML file. A value counts once for each reference (alias) to it, because a few lines of aliases
can stand for billions of values."""
DEPTH_MAX: Final = 50
"""The deepest nesting of tables and lists that is read; settings have five levels. Parsers fail at various depths."""
TOO_DEEP: Final = f"more than {DEPTH_MAX} levels of nested tables and lists"
_TABLE: Final = re.compile(r"\s*\[(?P<path>[^\[\]]+)\]\s*(?:#.*)?")
_NAME: Final = r"(?:[\w-]+|\"[^\"]*\"|'[^']*')"
_FIELD: Final = re.compile(rf"\s*(?P<path>{_NAME}(?:\s*\.\s*{_NAME})*)\s*=.*")
_PART: Final = re.compile(_NAME)
_LONG_NUMBER: Final = re.compile(r"[0-9][0-9_]{4299}")
"""Matches a number with more than 4300 digits, the most that Python reads."""
_BRACKET: Final = re.compile(
    r'''"""(?:[^\\]|\\.)*?"""|\'{3}.*?\'{3}|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|#[^\n]*|[\[\]{}]''', re.DOTALL
)
"""Matches a bracket; also a whole string or comment, so that the brackets in it are not counted."""
_CONSTANT: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"|(?P<name>NaN|Infinity)')
_LINE: Final = re.compile(r"at line (?P<line>\d+)")


class InvalidConfiguration(ReconvergeError, ValueError):
    """Raised when settings cannot be used. The message names the source and the field, and for a file the line.

    `source` is the file, the environment or the arguments; `line` counts from 1, and is None without a file; `field` is
    written with dots, as in `limits.login.soft`.
    """

    def __init__(self, source: str, problem: str, *, line: int | None = None, field: str = "") -> None:
        self.source = source
        self.problem = problem
        self.line = line
        self.field = field
        where = source if line is None else f"{source}, line {line}"
        super().__init__(f"{where}: {field}: {problem}" if field else f"{where}: {problem}")


class Source:
    """A file of settings: its values, and the lines in which they are written.

    Raises InvalidConfiguration if the file cannot be read, has more than `characters_max` characters, or is not in the
    format of its extension.
    """

    def __init__(self, path: Path, *, characters_max: int = CHARACTERS_MAX) -> None:
        self.name = path.name
        self._values_max = VALUES_MAX // CHARACTERS_MAX * characters_max
        self._toml = path.suffix in TOML
        self._json = path.suffix in JSON  # JSON may be indented by tabs, which YAML forbids
        readers = {
            **dict.fromkeys(TOML, self._read_toml),
            **dict.fromkeys(YAML, self._read_yaml),
            **dict.fromkeys(JSON, self._read_json),
        }
        if path.suffix not in readers and path.is_dir():
            raise InvalidConfiguration(str(path), "is a directory; give the path of a file in it")
        if path.suffix not in readers:
            raise InvalidConfiguration(
                str(path), f"ends in none of {', '.join(readers)}; give the file one of these extensions"
            )
        self._text = _text_of(path, characters_max)
        said = readers[path.suffix]()
        if not isinstance(said, dict):
            raise InvalidConfiguration(
                self.name, "is not a table of settings; write each setting as a name and a value", line=1
            )
        for name in said:
            if not isinstance(name, str):
                raise InvalidConfiguration(
                    self.name, f"the name of a setting must be a string, and {name!r} is not", line=1
                )
        self.said: dict[str, Any] = said

    def line_of(self, path: Sequence[str | int]) -> int | None:
        """Returns the line of the field at `path`, or else of the innermost table around it that is written.

        Returns None if neither is found.
        """
        return self._line_in_toml(path) if self._toml else self._line_in_yaml(path)

    def _read_toml(self) -> Any:
        self._check_brackets("TOML")
        try:
            return tomllib.loads(self._text)
        except tomllib.TOMLDecodeError as error:
            match = _LINE.search(str(error))
            line = self._text.count("\n") + 1 if match is None else int(match["line"])
            problem = f"is not TOML: {error}; texts stand in quotation marks, as in login = '5/minute'"
            raise InvalidConfiguration(self.name, problem, line=line) from None
        except (ValueError, RecursionError) as error:  # numbers and tables that Python cannot read
            raise InvalidConfiguration(self.name, f"is not TOML: {error}", line=self._line_of_long_number()) from None

    def _read_yaml(self) -> Any:
        try:
            loader = _Once(self._text)
            try:
                node = loader.get_single_node()
                if node is None:
                    return {}
                self._check_size(node)
                said = loader.construct_document(node)
            finally:
                loader.dispose()
        except yaml.YAMLError as error:
            mark, character = getattr(error, "problem_mark", None), getattr(error, "position", None)
            line = None if mark is None else mark.line + 1
            problem = f"is not YAML: {getattr(error, 'problem', None) or error}"
            if "'\\t'" in problem:
                problem += "; indent with spaces, not with a tab"
            if isinstance(character, int):  # a character that YAML forbids
                line, problem = self._line_at(character), "is not YAML: has a control character"
            raise InvalidConfiguration(self.name, problem, line=line) from None
        return {} if said is None else said

    def _check_size(self, root: yaml.Node) -> None:
        """Raises InvalidConfiguration if a YAML file refers to itself, or has too many values by its references."""
        sizes, around = dict[int, int](), set[int]()

        def size_of(node: yaml.Node) -> int:
            if isinstance(node, yaml.ScalarNode):
                return 1
            line = node.start_mark.line + 1
            if id(node) in around:
                raise InvalidConfiguration(
                    self.name, "is not YAML of settings: an alias refers to itself; write the values out", line=line
                )
            if id(node) not in sizes:
                around.add(id(node))
                parts = [part for pair in node.value for part in (pair if isinstance(pair, tuple) else (pair,))]
                sizes[id(node)] = 1 + sum(size_of(part) for part in parts)
                around.discard(id(node))
            if sizes[id(node)] > self._values_max:
                problem = f"is not a YAML file of settings: its references make more than {self._values_max} values"
                raise InvalidConfiguration(self.name, problem, line=line)
            return sizes[id(node)]

        size_of(root)

    def _check_brackets(self, language: str) -> None:
        """Raises InvalidConfiguration if the tables and lists of a JSON or TOML file are nested too deeply."""
        depth = 0
        for match in _BRACKET.finditer(self._text):
            depth += (match.group() in "[{") - (match.group() in "]}")
            if depth > DEPTH_MAX:
                problem = f"is not {language}: {TOO_DEEP}"
                raise InvalidConfiguration(self.name, problem, line=self._line_at(match.start()))

    def _line_of_long_number(self) -> int | None:
        match = _LONG_NUMBER.search(self._text)
        return None if match is None else self._line_at(match.start())

    def _line_at(self, character: int) -> int:
        return self._text.count("\n", 0, character) + 1

    def _read_json(self) -> Any:
        def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
            """Returns a JSON object as a dict. Raises InvalidConfiguration for a name that occurs twice in it."""
            table: dict[str, Any] = {}
            for name, value in pairs:
                if name in table:
                    raise InvalidConfiguration(
                        self.name, f"{name!r} is written twice; remove one", line=self._line_of_second(name)
                    )
                table[name] = value
            return table

        def refuse(constant: str) -> NoReturn:
            line = next((self._line_at(each.start()) for each in _CONSTANT.finditer(self._text) if each["name"]), None)
            raise InvalidConfiguration(self.name, f"is not JSON: {constant} is not a number", line=line)

        self._check_brackets("JSON")
        try:
            return json.loads(self._text, object_pairs_hook=once, parse_constant=refuse)
        except json.JSONDecodeError as error:
            raise InvalidConfiguration(self.name, f"is not JSON: {error.msg}", line=error.lineno) from None
        except InvalidConfiguration:
            raise
        except (ValueError, RecursionError) as error:  # numbers and tables that Python cannot read
            raise InvalidConfiguration(self.name, f"is not JSON: {error}", line=self._line_of_long_number()) from None

    def _line_of_second(self, name: str) -> int | None:
        places = [match.start() for match in re.finditer(rf"{re.escape(json.dumps(name))}\s*:", self._text)]
        return self._text.count("\n", 0, places[1]) + 1 if len(places) > 1 else None

    def _line_in_toml(self, path: Sequence[str | int]) -> int | None:
        wanted, table, best, found = [str(part) for part in path], list[str](), 0, None
        for number, line in enumerate(self._text.split("\n"), start=1):
            header, field = _TABLE.fullmatch(line), _FIELD.fullmatch(line)
            if header is not None:
                table = here = _parts(header["path"])
            elif field is not None:
                here = table + _parts(field["path"])
            else:
                continue
            # A table without a header begins with the first of its fields.
            common = len(_common(here, wanted))
            if common > best and (len(here) <= len(wanted) or common == len(wanted)):
                best, found = common, number
        return found

    def _line_in_yaml(self, path: Sequence[str | int]) -> int | None:
        try:
            text = self._text.replace("\t", " ") if self._json else self._text
            node, line = yaml.compose(text, Loader=yaml.SafeLoader), None
        except (yaml.YAMLError, RecursionError):  # not all JSON is YAML
            return None
        for part in path:
            if isinstance(node, yaml.SequenceNode) and str(part).isdecimal() and int(part) < len(node.value):
                node = node.value[int(part)]
                line = node.start_mark.line + 1
                continue
            if not isinstance(node, yaml.MappingNode):
                break
            for key, value in node.value:
                if key.value == str(part):
                    node, line = value, key.start_mark.line + 1
                    break
            else:
                break
        return line


class _Once(yaml.SafeLoader):
    """A YAML loader for plain data. It refuses a repeated name, of which PyYAML would silently keep the last value."""

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Raises MarkedYAMLError if values are nested too deeply, because the base class calls itself at each level."""
        self._depth += 1
        if self._depth > DEPTH_MAX + 1:  # one more for a value at the innermost level
            event: Any = self.peek_event()  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(None, None, TOO_DEEP, event.start_mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:  # noqa: FBT001, FBT002
        """Returns the value of a node. Raises ConstructorError for an invalid number or date.

        The base class raises various errors for them.
        """
        try:
            return super().construct_object(node, deep=deep)
        except (yaml.YAMLError, RecursionError):
            raise
        except Exception as error:  # noqa: BLE001  # see the docstring
            problem = f"{type(error).__name__}: {error}"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from None

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002
        said = set[str]()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue  # the base class refuses it
            if key.value in said:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key.value!r} is written twice; remove one", key.start_mark
                )
            said.add(key.value)
        return cast("dict[Any, Any]", super().construct_mapping(node, deep=deep))


def bytes_of(path: Path, bytes_max: int) -> bytes:
    """Returns the first `bytes_max` bytes of a regular file. Raises InvalidConfiguration if it cannot be read."""
    try:
        if path.exists() and not path.is_file():
            raise InvalidConfiguration(
                str(path), "cannot be read: it is not a regular file; name one"
            )  # reading a pipe would wait
        with path.open("rb") as file:
            return file.read(bytes_max)
    except (OSError, ValueError) as error:
        if isinstance(error, InvalidConfiguration):
            raise
        problem = f"cannot be read: {getattr(error, 'strerror', None) or error}"
        if isinstance(error, FileNotFoundError):
            problem = "cannot be read: there is no such file; give the path of one"
        raise InvalidConfiguration(str(path), problem) from error


def _text_of(path: Path, characters_max: int) -> str:
    written = bytes_of(path, UTF8_BYTES_MAX * characters_max + len(BOM_UTF8) + 1)
    try:
        text = written.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = written.count(b"\n", 0, error.start) + 1
        raise InvalidConfiguration(path.name, f"cannot be read: {error}; save it as UTF-8", line=line) from error
    if len(text) > characters_max:
        raise InvalidConfiguration(path.name, f"has more than {characters_max} characters; shorten it")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _parts(path: str) -> list[str]:
    return [part.strip("\"'") for part in _PART.findall(path)]


def _common(one: Sequence[str], other: Sequence[str]) -> list[str]:
    common: list[str] = []
    for here, there in zip(one, other, strict=False):
        if here != there:
            break
        common.append(here)
    return common
