"""Reads the path of a request, and keeps the results for all rules."""

# Theory of operation.
#
# Rules compare normal forms of a path, which are the same for all its spellings (`paths.py` explains why). For these
# forms, a path is decoded, normalized and divided. A client can make this work long: if each of thirty rules did it,
# one request could take a second. So each request has a `ReadPath`, which caches results for all rules. Every step
# takes time in proportion to the length of the path, and the length is bounded: a longer path is not read at all, so
# every rule applies to it.
#
# One step would not be linear: the normalization of Unicode sorts consecutive combining marks, such as accents, by
# insertion. A text with more consecutive marks than Unicode allows in stream-safe text is not normalized, and is
# treated like a path that is too long.

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Final
from urllib.parse import unquote

PATH_CHARACTERS_MAX: Final = 8192
"""The longest path that is read, as received and in normal form; every rule applies to a longer one. The usual proxies
and servers accept no longer request line (nginx and Apache 8 KB, aiohttp and gunicorn less); uvicorn accepts 64 KB."""
MARKS_MAX: Final = 30
"""The most consecutive combining characters, as in the stream-safe text of Unicode (UAX 15)."""
DECODINGS_MAX: Final = 4
"""The most times that a path is decoded here; it arrives decoded once, and no router decodes it more often."""

_STRANGE: Final = re.compile(r"[^A-Za-z0-9_~!$&'()*+,=:@./-]|//|/\.|^[^/]")
"""Matches a part that only an unusual spelling of a path has. A path without any such part is plain."""
_IGNORED: Final = re.compile(r"[\s\x00-\x1f\x7f-\x9f\xad\u200b-\u200f\u2028-\u202e\u2060-\u2064\ufeff]+")
"""Matches white space, control characters and invisible characters, which normal forms leave out."""
_PARAMETERS: Final = re.compile(r";[^/]*")
"""Matches the part of a segment from a semicolon on, which some servers cut off."""
_SLASHES: Final = re.compile(r"//+")
_ORIGIN: Final = re.compile(r"/?[A-Za-z][A-Za-z0-9+.-]*:/+[^/]*")
"""Matches the beginning of a request target that also contains the server: `http://example.com`."""
_NO_MARKS: Final = re.compile(r"[\x00-\u02ff]+")
"""Matches a text without combining marks: the first combining mark is U+0300."""


class ReadPath:
    """The path of one request, whole and without the application's prefixes, with cached results about it."""

    __slots__ = ("_failed", "_forms", "_sought", "_strange", "is_too_long", "paths")

    def __init__(self, path: str, inner: Sequence[str] = ()) -> None:
        self.paths: tuple[str, ...] = (path, *inner) if inner else (path,)
        self.is_too_long = len(path) > PATH_CHARACTERS_MAX
        """Whether the path is too long, so that every rule applies to it."""
        self._strange: bool | None = None
        self._forms: list[str] | None = None
        self._sought: Sequence[str] | None = None
        self._failed: Exception | None = None

    @property
    def is_strange(self) -> bool:
        """Whether the path may be an unusual spelling of another path."""
        if self._strange is None:
            self._strange = any(_STRANGE.search(path) is not None for path in self.paths)
        return self._strange

    @property
    def forms(self) -> list[str]:
        """Returns the path's normal forms; an empty list, and sets `is_too_long`, if a normal form is too long."""
        if self._forms is None:
            forms = [list(normal_forms(path)) for path in self.paths]
            self.is_too_long = not all(forms)
            self._forms = [] if self.is_too_long else list(dict.fromkeys(chain.from_iterable(forms)))
        return self._forms

    def sought(self, request: Any, key_of: Callable[[str], str]) -> Sequence[str]:
        """Returns the keys (see `key_of`) of the routes that the router finds for a request; calls the router once.

        If the router raises an error, this and every later call raise it.
        """
        if self._failed is not None:
            raise self._failed.with_traceback(None)
        if self._sought is None:
            try:
                self._sought = [key_of(template) for template in getattr(request, "seek_templates", tuple)()]
            except Exception as error:
                self._failed = error
                raise
        return self._sought


def read_path_of(request: Any) -> ReadPath:
    """Returns the `ReadPath` of a request: its attribute `read_path`, or a new object if it has none."""
    read: ReadPath | None = getattr(request, "read_path", None)
    return ReadPath(request.path, getattr(request, "inner_paths", ())) if read is None else read


def normal_forms(path: str) -> Iterator[str]:
    """Yields the normal forms of a path, which all spellings of it have in common; several for an ambiguous path.

    Yields none for a path that is or becomes too long, or that has too many combining marks.
    """
    if len(path) > PATH_CHARACTERS_MAX:
        return
    text = path
    for _ in range(DECODINGS_MAX):
        decoded = unquote(text, errors="replace") if "%" in text else text
        if decoded == text:
            break
        text = decoded
    if not text.isascii():
        if _has_too_many_marks(text):
            return
        text = unicodedata.normalize("NFKC", text)
    if len(text) > PATH_CHARACTERS_MAX:
        return
    text = text.replace("\\", "/")
    origin = _ORIGIN.match(text)
    if origin is not None:
        text = text[origin.end() :]
    for each in dict.fromkeys((text, re.split(r"[?#]", text, maxsplit=1)[0])):
        segments = _SLASHES.sub("/", _IGNORED.sub("", _PARAMETERS.sub("", each))).split("/")
        yield "/" + "/".join(segment for segment in segments if segment not in ("", "."))
        yield "/" + "/".join(_resolved(segments))


def _has_too_many_marks(text: str) -> bool:
    """Whether a text has so many consecutive combining marks that sorting them would take longer than reading them."""
    for run in _NO_MARKS.split(text):
        if len(run) > MARKS_MAX:
            marks = 0
            for character in run:
                marks = marks + 1 if _is_mark(character) else 0
                if marks > MARKS_MAX:
                    return True
    return False


def _is_mark(character: str) -> bool:
    """Whether a character combines with the one before it, or decomposes into characters that do."""
    return unicodedata.combining(unicodedata.normalize("NFKD", character)[0]) > 0


def _resolved(segments: Iterable[str]) -> list[str]:
    """Returns the segments of a path with `.` and `..` resolved."""
    left: list[str] = []
    for segment in segments:
        if segment == "..":
            del left[-1:]
        elif segment not in ("", "."):
            left.append(segment)
    return left


def below_mount(path: str, roots: Iterable[str]) -> list[str]:
    """Returns the rest of `path` after each of `roots`, prefixes of mounted applications, that occurs in it."""
    found: list[str] = []
    for root in roots:
        if root and root != "/":
            # Litestar searches for the prefix anywhere, all others at the beginning.
            _, mount, rest = path.partition(root)
            if mount:
                found.append(rest if rest.startswith("/") else f"/{rest}")
    return found
