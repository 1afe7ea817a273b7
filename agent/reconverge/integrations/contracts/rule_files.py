"""Reads contracts from files of YAML, JSON and TOML, with errors that name line and field, and writes such files."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from reconverge.contracts.document import checked
from reconverge.contracts.model import Document, InvalidContracts, field_at
from reconverge.contracts.writing import table_of
from reconverge.errors import InvalidSetting, MissingExtra, asked, shown
from reconverge.integrations.config.positions import InvalidConfiguration, Source

try:
    import yaml
except ImportError as error:
    raise MissingExtra("a file of contracts", "PyYAML", "config") from error

Language: TypeAlias = Literal["yaml", "json", "toml"]
LANGUAGES: Final[tuple[Language, ...]] = ("yaml", "json", "toml")
CHARACTERS_MAX: Final = 1 << 26
"""The longest file of contracts: a million customers, one in each line."""
LINE_LENGTH: Final = 100
_BREAKS: Final = re.compile("[\x85\u2028\u2029\ufeff]")
"""Characters that YAML reads as line breaks or drops; PyYAML's `allow_unicode` would not escape them."""


def read_contracts(path: Path) -> Document:
    """Returns the contracts in a YAML, JSON or TOML file. Raises InvalidConfiguration, with line and field."""
    source = Source(path, characters_max=CHARACTERS_MAX)
    try:
        return checked(source.said)
    except InvalidContracts as error:
        line = source.line_of(error.path) or 1  # something missing at the top level has no line
        raise InvalidConfiguration(source.name, error.problem, line=line, field=field_at(error.path)) from None


def written_contracts(document: Document, language: str) -> str:
    """Returns the contracts as the text of a file, from which `read_contracts` returns the same contracts.

    Raises InvalidSetting for an unknown format, or if the format cannot express a name of the document.
    """
    return written_table(table_of(document), language)


def written_table(table: Mapping[str, Any], language: str) -> str:
    """Returns a dict, such as `table_of` makes, as text in the file format `language`. Raises InvalidSetting."""
    if language == "json":
        return json.dumps(table, indent=2) + "\n"
    if language == "yaml":
        text = _yaml_text(table, unicode=True)
        return _encodable(_yaml_text(table, unicode=False) if _BREAKS.search(text) else text, language)
    if language == "toml":
        return _encodable("\n".join(_toml_lines(table, ())).strip("\n") + "\n", language)
    raise InvalidSetting(
        "to", language, f"is not a file format; known: {', '.join(LANGUAGES)}{asked(language, LANGUAGES)}"
    )


def _yaml_text(table: Mapping[str, Any], *, unicode: bool) -> str:
    text: str = yaml.safe_dump(dict(table), sort_keys=False, allow_unicode=unicode, width=LINE_LENGTH)
    return text


def _encodable(text: str, language: str) -> str:
    """Returns `text` unchanged. Raises InvalidSetting if it is not valid Unicode, which only JSON can express."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        problem = f"cannot express {shown(text[error.start : error.end])}, which is half a character; use json"
        raise InvalidSetting("to", language, problem) from None
    return text


def _toml_lines(table: Mapping[str, Any], path: Sequence[str]) -> list[str]:
    """Returns a table's lines in TOML, below a header with its `path`; its plain values come before its tables."""
    plain = {name: value for name, value in table.items() if not isinstance(value, Mapping)}
    lines = [] if not path or (table and not plain) else ["", f"[{'.'.join(map(_toml_key, path))}]"]
    lines += [f"{_toml_key(name)} = {_toml_value(value)}" for name, value in plain.items()]
    for name, value in table.items():
        if isinstance(value, Mapping):
            lines += _toml_lines(value, (*path, name))
    return lines


def _toml_value(value: object) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_toml_key(name)} = {_toml_value(each)}" for name, each in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml_value, value)) + "]"
    return _toml_text(value) if isinstance(value, str) else json.dumps(value)


def _toml_key(name: str) -> str:
    return name if name.isascii() and name.replace("_", "a").replace("-", "a").isalnum() else _toml_text(name)


def _toml_text(text: str) -> str:
    """Returns the text as a quoted string of TOML; unlike in JSON, the character DEL is escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
