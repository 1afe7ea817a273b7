"""Reads the parts of a request to the API strictly: its path, its query, its conditions and its body."""

# Theory of operation.
#
# A request with an ambiguous part is refused, and the response names the place. Common parsers replace, drop or guess;
# here, bytes that are not UTF-8, a repeated member of an object, a number too large for a float, NaN, half of a
# surrogate pair, and a parameter without effect are refused. Everything that a client can make large has a bound, and a
# body is read only up to its bound.
#
# Versions are entity tags: version 7 of the contracts is `"7"`, for every resource. So a client can read one customer
# and write it back on condition that nothing has changed. Conditions are checked against the version that was just
# read, and the change is made for that version only; a change in between is a conflict.

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from json import JSONDecodeError
from math import isfinite
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl, unquote_to_bytes

from reconverge.errors import MissingExtra
from reconverge.integrations.contracts.problems import Problem, pointer_of, wrong_field

try:
    from starlette.requests import Request
except ModuleNotFoundError as error:
    raise MissingExtra("the API of contracts", error.name or "starlette", "api") from error

Do: TypeAlias = Callable[[Callable[[], Any]], Awaitable[Any]]
"""A function that calls another one, which takes long, for example in a thread, and returns its result."""
JSON: Final = "application/json"
VERSION_MAX: Final = 2**53
"""The largest whole number that all JSON parsers keep exactly."""
NESTING_MAX: Final = 16
"""The deepest nesting of a body. A contracts document has eight levels; JSON parsers fail when their stack is full."""
SHORT_BYTES: Final = 4096
"""The length, in bytes, up to which a body is parsed at once. Passing so short a body to a thread would take longer."""
PARAMETERS_MAX: Final = 64
"""The most parameters of a query."""
CONDITION_LENGTH_MAX: Final = 1000
"""The longest `If-Match` field, in characters; a client knows one version or a few."""
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_SURROGATE_ESCAPE: Final = re.compile(r"\\u[dD][89a-fA-F]")
"""Finds an escaped surrogate in JSON. Emoji are written as two surrogates, so a match may still be valid text."""
_TAG: Final = '(W/)?"[!#-~]*"'
CONDITION_PATTERN: Final = rf"^(\*|{_TAG}( *, *{_TAG})*)$"
_CONDITION: Final = re.compile(CONDITION_PATTERN)
_VERSION_TAG: Final = re.compile(r'(W/)?"(0|[1-9][0-9]{0,17})"')


def route_path(scope: Mapping[str, Any]) -> str:
    """Returns a request's path without the prefix at which the API is mounted. Raises Problem if it is not UTF-8."""
    raw = scope.get("raw_path")
    if raw is not None:
        try:
            unquote_to_bytes(raw).decode("utf-8")
        except UnicodeDecodeError:
            raise Problem(400, "the path is not percent-encoded UTF-8; percent-encode the names in it") from None
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    return path[len(root) :] if root and path.startswith(f"{root}/") else path


def query_of(request: Request, known: tuple[str, ...] | None) -> dict[str, str]:
    """Returns the query's parameters. Raises Problem (400) for one that occurs twice or is not in `known`.

    If `known` is None, any name is allowed.
    """
    try:
        text = request.scope["query_string"].decode("ascii")
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=PARAMETERS_MAX)
    except ValueError:
        raise Problem(400, f"the query is not percent-encoded UTF-8 with at most {PARAMETERS_MAX} parameters") from None
    query = dict(pairs)
    if len(query) < len(pairs):
        raise Problem(
            400, f"the query has {len(pairs)} parameters, and one of {', '.join(query)[:200]} twice; send each once"
        )
    for name in query:
        if known is not None and name not in known:
            there_is = ", ".join(known) or "none"
            raise Problem(400, f"there is no parameter {name[:100]!r} here; known: {there_is}", parameter=name[:100])
    return query


@dataclass(frozen=True, slots=True)
class Conditions:
    """The versions for which a request is meant, from its fields If-Match and If-None-Match.

    `match` and `none_match` are the versions named in each field: None if the field is absent or `*`, and empty if it
    names no version that can exist. `any_match` and `none_any` mean that the field is `*`.
    """

    match: frozenset[int] | None
    any_match: bool
    none_match: frozenset[int] | None
    none_any: bool

    @property
    def are_there(self) -> bool:
        """Whether the request has a field If-Match or If-None-Match, and so has conditions."""
        return self.any_match or self.none_any or self.match is not None or self.none_match is not None

    def check_match(self, version: int, *, exists: bool, reads: bool) -> None:
        """Raises Problem (412) if the conditions of a request exclude `version`, the present version.

        `exists`: whether the contracts that the path names exist. `reads`: whether the request only reads. In that case
        If-None-Match only names the version that the client has already, which is no error; see `is_known`.
        """
        if self.any_match and not exists:
            raise _failed("there are no contracts yet, and If-Match requires some; leave it out", version)
        if self.match is not None and version not in self.match:
            raise _failed(f"the contracts are at version {version}, but If-Match names another version", version)
        if not reads and exists and self.is_known(version):
            raise _failed(f"the contracts are at version {version}, which If-None-Match excludes", version)

    def is_known(self, version: int) -> bool:
        """Returns whether the client already has `version`: the request's If-None-Match names that version."""
        return self.none_any or (self.none_match is not None and version in self.none_match)


def conditions_of(request: Request) -> Conditions:
    """Returns the conditions in the fields If-Match and If-None-Match. Raises Problem (400) if they are malformed."""
    match, any_match = _tags(request, "if-match", weak=False)
    none_match, none_any = _tags(request, "if-none-match", weak=True)
    return Conditions(match, any_match, none_match, none_any)


def tag_of(version: int) -> str:
    """Returns a version as an entity tag of HTTP: version 7 as `"7"`, with the quotes."""
    return f'"{version}"'


def _tags(request: Request, field: str, *, weak: bool) -> tuple[frozenset[int] | None, bool]:
    """Returns the versions that a header field names, and whether the field is `*`. `weak` allows weak entity tags.

    The versions are None if the field is absent or `*`.
    """
    said = request.headers.getlist(field)
    if not said:
        return None, False
    text = ", ".join(said)
    if len(text) > CONDITION_LENGTH_MAX or not _CONDITION.fullmatch(text):
        raise Problem(400, f'{field} must be a version in quotes, such as "7", several with commas, or *')
    if text == "*":
        return None, True
    tags = _VERSION_TAG.finditer(text)
    return frozenset(int(each[2]) for each in tags if weak or not each[1]), False


def _failed(problem: str, version: int) -> Problem:
    return Problem(412, f"{problem}; read them again", fields={"ETag": tag_of(version)}, version=version)


async def form_of(request: Request, *, bytes_max: int, fields_max: int) -> dict[str, str]:
    """Returns the fields of a browser's form; of a repeated name, the last one. Raises Problem (400, 413)."""
    raw = await _body(request, bytes_max)
    try:
        return dict(parse_qsl(raw.decode("ascii", "replace"), max_num_fields=fields_max))
    except ValueError:  # the only reason for this error, because wrong bytes are replaced
        raise Problem(400, f"the form has more than {fields_max} fields; send fewer") from None


async def json_of(request: Request, *, bytes_max: int, required: bool = True, do: Do | None = None) -> Any:
    """Returns a request's body, parsed as JSON; None if the body is empty and not `required`. Raises Problem.

    If `do` is given, it runs the parsing of a long body, for example in a thread.
    """
    raw = await _body(request, bytes_max)
    if not raw and not required:
        return None
    _check_type(request)
    return _read(raw) if do is None or len(raw) <= SHORT_BYTES else await do(lambda: _read(raw))


def _read(raw: bytes) -> Any:
    try:
        text = raw.decode("utf-8")
        said = json.loads(text, object_pairs_hook=_object, parse_constant=_no_number, parse_float=_finite)
    except UnicodeDecodeError as error:
        raise Problem(400, f"the body is not UTF-8, from byte {error.start} on; send UTF-8") from None
    except JSONDecodeError as error:
        raise Problem(400, f"the body is not JSON: {error.msg}, in line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise Problem(400, f"the body is nested more than {NESTING_MAX} levels deep; flatten it") from None
    except ValueError:  # raised for a whole number with thousands of digits
        raise Problem(400, "the body has a whole number of thousands of digits; send a smaller one") from None
    _check_nesting(said)
    if _SURROGATE_ESCAPE.search(text):  # in UTF-8, only an escape can make a surrogate
        _check_text(said)
    return said


async def _body(request: Request, bytes_max: int) -> bytes:
    """Returns a request's body. Raises Problem (413) if it is longer than `bytes_max`, without reading the rest."""
    too_large = Problem(413, f"the body is longer than {bytes_max} bytes; send a shorter one")
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and (len(declared) > 18 or int(declared) > bytes_max):
        raise too_large
    chunks, length = [], 0
    async for chunk in request.stream():
        length += len(chunk)
        if length > bytes_max:
            raise too_large
        chunks.append(chunk)
    return b"".join(chunks)


def _check_type(request: Request) -> None:
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise Problem(
            415,
            "the body is compressed, by Content-Encoding; send it uncompressed",
            fields={"Accept-Encoding": "identity"},
        )
    kind, *parameters = request.headers.get("content-type", "").lower().split(";")
    charset = [each.partition("=")[2].strip(' "') for each in parameters if each.strip().startswith("charset=")]
    if kind.strip() != JSON or (charset and charset != ["utf-8"]):
        raise Problem(415, f"the body must be {JSON}, in UTF-8, not {kind.strip()[:80]!r}", fields={"Accept": JSON})


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise Problem(400, f"an object of the body has the member {twice[:100]!r} twice; send it once")
    return found


def _no_number(name: str) -> Any:
    raise Problem(400, f"the body has {name}, which is not a number in JSON; send a finite number")


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise Problem(400, f"the body has the number {text[:40]}, which is too large; send a smaller one")
    return number


def _check_nesting(said: Any) -> None:
    """Raises Problem if a body is nested too deeply. The check goes level by level, without recursion."""
    level = [said] if isinstance(said, dict | list) else []
    for _ in range(NESTING_MAX):
        level = [each for outer in level for each in _inside(outer) if isinstance(each, dict | list)]
    if level:
        raise Problem(400, f"the body is nested more than {NESTING_MAX} levels deep; flatten it")


def _inside(value: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value


def _check_text(said: Any) -> None:
    """Raises Problem if a text in the body is not valid Unicode; the problem has the path to the text."""
    ahead: list[tuple[tuple[str | int, ...], Any]] = [((), said)]
    while ahead:
        path, value = ahead.pop()
        if isinstance(value, str) and _SURROGATE.search(value):
            raise wrong_field(422, "has half of a surrogate pair, which is no character; send whole characters", path)
        if isinstance(value, dict):
            if any(map(_SURROGATE.search, value)):
                raise Problem(
                    422,
                    f"a name at {pointer_of(path) or 'the top'!r} has half of a surrogate pair; send whole characters",
                )
            ahead += [((*path, name), each) for name, each in value.items()]
        elif isinstance(value, list):
            ahead += [((*path, number), each) for number, each in enumerate(value)]


def members_of(said: Any, *known: str) -> dict[str, Any]:
    """Returns the body `said` if it is an object with no members except `known`. Raises Problem (422) if it is not."""
    if not isinstance(said, dict):
        raise wrong_field(422, f"must be an object with {', '.join(known)}", ())
    for name in said:
        if name not in known:
            raise wrong_field(422, f"there is no such member; known: {', '.join(known)}", (name[:100],))
    return said
